//! `DynCaller`: a type-erased caller.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{Stream, stream};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::Caller;
use super::reply::undecodable;
use crate::MethodDescriptor;
use crate::payload::dyn_message::{DynMessage, DynMessages, RawMessage};
use crate::stream::{Scripted, scripted_response};

/// Any caller: a `Channel`, one with layers or an interceptor, a mock. It is what a struct
/// holds that is not to be generic over its channel. Clones share the caller.
///
/// A call costs a few allocations more than on the caller itself, and each message of a stream of
/// requests one. Messages are encoded and decoded once, as without it.
///
/// # Examples
///
/// ```
/// use farcall::mock::MockChannel;
/// # use farcall::{Caller, CallKind, Detach, Idempotency, MethodDescriptor};
/// use farcall::{Channel, DynCaller, Request, Response, Status};
/// # // Stands for what is generated from a `.proto` file.
/// # static SAY_HELLO: MethodDescriptor = MethodDescriptor {
/// #     path: "/hello.Greeter/SayHello",
/// #     kind: CallKind::Unary,
/// #     idempotency: Idempotency::Unknown,
/// #     detach: Detach::NONE,
/// # };
/// # struct GreeterStub<C>(C);
/// # impl<C: Caller> GreeterStub<C> {
/// #     fn new(caller: C) -> Self { Self(caller) }
/// #     async fn say_hello(&self, name: String) -> Result<Response<String>, Status> {
/// #         self.0.unary(&SAY_HELLO, Request::new(name)).await
/// #     }
/// # }
///
/// /// The same type, whatever its calls go through.
/// struct Reception {
///     greeter: GreeterStub<DynCaller>,
/// }
///
/// impl Reception {
///     fn new(caller: DynCaller) -> Self {
///         Self { greeter: GreeterStub::new(caller) }
///     }
///
///     async fn welcome(&self, name: &str) -> Result<String, Status> {
///         Ok(self.greeter.say_hello(name.to_owned()).await?.into_inner())
///     }
/// }
///
/// fn in_production(channel: Channel) -> Reception {
///     Reception::new(DynCaller::new(channel.layer(farcall::layer::TraceLayer::new())))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Status> {
/// // In a test.
/// let mock = MockChannel::new();
/// mock.on_unary("/hello.Greeter/SayHello", |request: Request<String>| async move {
///     Ok(Response::new(format!("Hello, {}!", request.into_inner())))
/// });
/// let reception = Reception::new(DynCaller::new(mock));
/// assert_eq!(reception.welcome("Ada").await?, "Hello, Ada!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DynCaller {
    caller: Arc<dyn AnyCaller>,
}

impl DynCaller {
    /// Forgets the type of `caller`.
    pub fn new(caller: impl Caller + 'static) -> Self {
        Self { caller: Arc::new(caller) }
    }
}

impl fmt::Debug for DynCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynCaller").finish_non_exhaustive()
    }
}

/// The answer to a call.
type Answer<'a, T> = BoxFuture<'a, Result<Response<T>, Status>>;

/// A caller as an object.
trait AnyCaller: Send + Sync {
    fn call_unary(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessage>,
    ) -> Answer<'_, RawMessage>;

    fn call_server_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessage>,
    ) -> Answer<'_, Streaming<RawMessage>>;

    fn call_client_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessages>,
    ) -> Answer<'_, RawMessage>;

    fn call_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessages>,
    ) -> Answer<'_, Streaming<RawMessage>>;
}

impl<C: Caller> AnyCaller for C {
    fn call_unary(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessage>,
    ) -> Answer<'_, RawMessage> {
        Box::pin(self.unary(method, request))
    }

    fn call_server_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessage>,
    ) -> Answer<'_, Streaming<RawMessage>> {
        Box::pin(self.server_streaming(method, request))
    }

    fn call_client_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessages>,
    ) -> Answer<'_, RawMessage> {
        Box::pin(self.client_streaming(method, request))
    }

    fn call_streaming(
        &self,
        method: &'static MethodDescriptor,
        request: Request<DynMessages>,
    ) -> Answer<'_, Streaming<RawMessage>> {
        Box::pin(self.streaming(method, request))
    }
}

impl Caller for DynCaller {
    async fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> Result<Response<Resp>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        decode(self.caller.call_unary(method, request.map(DynMessage::new)).await?)
    }

    async fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let response = self.caller.call_server_streaming(method, request.map(DynMessage::new));
        Ok(response.await?.map(decode_stream))
    }

    async fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> Result<Response<Resp>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        decode(self.caller.call_client_streaming(method, request.map(DynMessages::new)).await?)
    }

    async fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let response = self.caller.call_streaming(method, request.map(DynMessages::new));
        Ok(response.await?.map(decode_stream))
    }
}

fn decode<M: Message + Default>(response: Response<RawMessage>) -> Result<Response<M>, Status> {
    let (metadata, RawMessage(message), extensions) = response.into_parts();
    let message = M::decode(message).map_err(|error| undecodable("message", &error))?;
    Ok(Response::from_parts(metadata, message, extensions))
}

fn decode_stream<M: Message + Default + 'static>(raw: Streaming<RawMessage>) -> Streaming<M> {
    // Absent once its trailers, which are the last part, have been given.
    let parts = stream::try_unfold(Some(raw), async |reading| {
        let Some(mut raw) = reading else { return Ok(None) };
        if let Some(RawMessage(message)) = raw.message().await? {
            let message = M::decode(message).map_err(|error| {
                Status::internal(format!("a message of the stream does not decode: {error}"))
            })?;
            return Ok(Some((Scripted::Message(message), Some(raw))));
        }
        let trailers = raw.trailers().await?.unwrap_or_default();
        Ok(Some((Scripted::Trailers(trailers), None)))
    });
    scripted_response(Box::pin(parts))
}
