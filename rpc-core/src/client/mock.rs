//! A channel for unit tests of clients: a test says how each method answers, and looks afterwards
//! at what was called.
//!
//! Nothing travels; limits, connections and deadlines have no part in it.
//! What a server does belongs into a test with a real server, over `inproc://` for one.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use prost::{DecodeError, Message};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::client::call::{ReplyBody, TypeName};
use crate::client::{Call, Caller, ClientReply};
use crate::stream::StreamPart;
use crate::{CallKind, Deadline, Method};

/// The body of a call: one message or a stream of messages, of any type.
type AnyBody = Box<dyn Any + Send>;

type Answer = BoxFuture<'static, Result<ClientReply, Status>>;

/// A channel whose answers a test scripts, a script a method; clones share them.
///
/// A method without a script answers with `UNIMPLEMENTED` and words that name it. A script whose
/// kind of call or whose messages are not the method's answers with `INTERNAL`, and words that say
/// so.
///
/// # Examples
///
/// ```
/// use farcall::mock::MockChannel;
/// use farcall::{CallKind, Caller, Code, Idempotency, MethodDescriptor};
/// use farcall::{Request, Response, Status};
/// # // Stands for what is generated from a `.proto` file.
/// # static SAY_HELLO: MethodDescriptor = MethodDescriptor::new(
/// #     "/hello.Greeter/SayHello",
/// #     CallKind::Unary,
/// #     Idempotency::Unknown,
/// # );
/// # struct GreeterStub<C>(C);
/// # impl<C: Caller> GreeterStub<C> {
/// #     fn new(caller: C) -> Self { Self(caller) }
/// #     async fn say_hello(&self, name: String) -> Result<Response<String>, Status> {
/// #         farcall::client::unary(&self.0, &SAY_HELLO, Request::new(name)).await
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Status> {
/// let mock = MockChannel::new();
/// mock.on_unary("/hello.Greeter/SayHello", |request: Request<String>| async move {
///     match request.into_inner().as_str() {
///         "" => Err(Status::invalid_argument("a name, please")),
///         name => Ok(Response::new(format!("Hello, {name}!"))),
///     }
/// });
///
/// let greeter = GreeterStub::new(mock.clone());
/// assert_eq!(greeter.say_hello("Ada".into()).await?.into_inner(), "Hello, Ada!");
/// let refused = greeter.say_hello(String::new()).await.unwrap_err();
/// assert_eq!(refused.code(), Code::InvalidArgument);
///
/// let calls = mock.calls();
/// assert_eq!(calls.len(), 2);
/// assert_eq!(calls[0].method.path(), "/hello.Greeter/SayHello");
/// assert_eq!(calls[0].request::<String>().unwrap(), "Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct MockChannel {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    scripts: BTreeMap<String, Script>,
    calls: Vec<RecordedCall>,
}

impl MockChannel {
    /// A mock without scripts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how the method at `path`, `/package.Service/Method`, answers one request with one
    /// response. A second script for a method takes the place of the first.
    pub fn on_unary<Req, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        F: Fn(Request<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let body = |message| one_message::<Resp>(&message);
        self.add(path, Script::new::<_, _, Resp, _, _>(CallKind::Unary, body, handler));
    }

    /// Scripts a method like [`MockChannel::on_unary`], which answers with a stream.
    pub fn on_server_streaming<Req, S, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: Fn(Request<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        let (kind, body) = (CallKind::ServerStreaming, many_messages);
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
    }

    /// Scripts a method like [`MockChannel::on_unary`], which receives a stream that the script
    /// reads.
    pub fn on_client_streaming<Req, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        F: Fn(Request<BoxStream<'static, Req>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let (kind, body) = (CallKind::ClientStreaming, |message| one_message::<Resp>(&message));
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
    }

    /// Scripts a method like [`MockChannel::on_unary`], with a stream in each direction.
    pub fn on_streaming<Req, S, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: Fn(Request<BoxStream<'static, Req>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        let (kind, body) = (CallKind::Streaming, many_messages);
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
    }

    /// The calls so far, in their order; those that nothing was scripted for are among them.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn add(&self, path: &str, script: Script) {
        self.state().scripts.insert(path.to_owned(), script);
    }

    /// Records a call and finds its script.
    fn script<T>(
        &self,
        method: &Method,
        request: &Request<T>,
        message: Option<Vec<u8>>,
    ) -> Result<Script, Status> {
        let explicit = request.extensions().get::<Deadline>().copied();
        // As a channel settles it: the earlier of the request's and the handler's around it.
        let deadline = explicit.into_iter().chain(Deadline::current()).min();
        let (metadata, message) = (request.metadata().clone(), message.map(Into::into));
        let mut state = self.state();
        // Before the look-up: a call without a script is recorded, too.
        state.calls.push(RecordedCall { method: method.clone(), metadata, deadline, message });
        state.scripts.get(method.path()).cloned().ok_or_else(|| {
            let scripted: Vec<_> = state.scripts.keys().collect();
            let path = method.path();
            Status::unimplemented(format!(
                "the mock has no script for {path}, only for \
                                           {scripted:?}"
            ))
        })
    }
}

impl Caller for MockChannel {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        let (method, response) = (call.method().clone(), (call.response)());
        let (metadata, extensions, body) = call.into_parts();
        let (body, message) = body.into_any();
        let request = Request::from_parts(metadata, extensions, body);
        let script = self.script(&method, &request, message)?;
        // The script was cloned out of the lock: its handler may call this mock or add scripts.
        script.answer(method.kind(), request, response).await
    }
}

/// The script of a method.
#[derive(Clone)]
struct Script {
    kind: CallKind,
    /// Name of the request type, for error messages.
    request: &'static str,
    /// The type of each message that it answers with.
    response: TypeName,
    answer: Arc<dyn Fn(Request<AnyBody>) -> Answer + Send + Sync>,
}

impl Script {
    /// A script that takes a `Request<In>` and answers with a `Response<Out>`, whose messages are
    /// of the type `M`; `body` encodes them.
    fn new<In, Out, M, F, Fut>(kind: CallKind, body: fn(Out) -> ReplyBody, handler: F) -> Self
    where
        In: Send + 'static,
        Out: 'static,
        M: 'static,
        F: Fn(Request<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Out>, Status>> + Send + 'static,
    {
        let reply = move |response: Response<Out>| {
            let (metadata, message, extensions) = response.into_parts();
            ClientReply::new(metadata, extensions, body(message))
        };
        let answer = move |request: Request<AnyBody>| -> Answer {
            let (metadata, extensions, message) = request.into_parts();
            let Ok(message) = message.downcast() else {
                let expected = type_name::<In>();
                let message = format!("the script takes {expected}, but the call has another type");
                return futures::future::ready(Err(Status::internal(message))).boxed();
            };
            let request = Request::from_parts(metadata, extensions, *message);
            handler(request).map(move |answer| answer.map(reply)).boxed()
        };
        let (request, response) = (type_name::<In>(), TypeName::of::<M>());
        Self { kind, request, response, answer: Arc::new(answer) }
    }

    /// Answers a call of that kind, whose responses are of that type.
    async fn answer(
        &self,
        kind: CallKind,
        request: Request<AnyBody>,
        response: TypeName,
    ) -> Result<ClientReply, Status> {
        if kind != self.kind {
            let message =
                format!("the script is of kind {:?}, but the call is {kind:?}", self.kind);
            return Err(Status::internal(message));
        }
        let reply = (self.answer)(request).await?;
        // After the answer: a script that returns a status has no message whose type could be
        // wrong.
        if response != self.response {
            let (found, expected) = (self.response.name, response.name);
            let message = format!("the script answers with {found} instead of {expected}");
            return Err(Status::internal(message));
        }
        Ok(reply)
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} -> {}", self.kind, self.request, self.response.name)
    }
}

/// A call that a client made through a [`MockChannel`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The method.
    pub method: Method,
    /// The request's metadata.
    pub metadata: MetadataMap,
    /// The deadline in the request's extensions, or the one that the call inherits.
    pub deadline: Option<Deadline>,
    /// The encoding of the one request; `None` when the requests are a stream, which the script
    /// reads.
    pub message: Option<Bytes>,
}

impl RecordedCall {
    /// The one request; the default message when the requests are a stream.
    ///
    /// # Errors
    ///
    /// Returns `DecodeError` if it is not an `M`.
    pub fn request<M: Message + Default>(&self) -> Result<M, DecodeError> {
        M::decode(self.message.clone().unwrap_or_default())
    }
}

/// The body of an answer that is one message.
fn one_message<M: Message>(message: &M) -> ReplyBody {
    ReplyBody::Message(Bytes::from(message.encode_to_vec()).into())
}

/// The body of an answer that is a stream.
fn many_messages<M, S>(messages: S) -> ReplyBody
where
    M: Message,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let encode = |message: Result<M, _>| {
        message.map(|message| StreamPart::Message(message.encode_to_vec().into()))
    };
    ReplyBody::Scripted(messages.map(encode).boxed())
}

#[cfg(test)]
#[path = "mock_tests.rs"]
mod tests;
