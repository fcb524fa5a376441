//! `Caller`: what generated stubs make calls through; `DynCaller`, a type-erased one; and callers
//! with tower's layers or tonic's interceptors around a channel.
//!
//! A [`crate::Channel`] is a `tower::Service` of calls that own their requests, and a
//! [`LayeredChannel`] is a [`Caller`] over any such service. What precedes a call's messages
//! can be read and changed; the messages stay as they are until the channel encodes them, once, in
//! the transport's memory. A channel without layers never comes by.

use std::fmt;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;

use futures::future::{BoxFuture, Either};
use parking_lot::Mutex;
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tower::{BoxError, Service, ServiceExt};

use super::{Call, ClientReply};
use crate::Method;
use crate::client::ClientCall;
use crate::client::call::rules::within;
use crate::layer::{RequestHead, into_status};

/// Something that can make calls: a `Channel`, or a layer around one.
///
/// # Examples
///
/// A caller of one's own, around any other:
///
/// ```
/// use farcall::client::{Call, ClientReply};
/// use farcall::{Caller, Status};
///
/// /// Says with each call from where it is made.
/// struct FromBerlin<C>(C);
///
/// impl<C: Caller> Caller for FromBerlin<C> {
///     async fn call(&self, mut call: Call<'_>) -> Result<ClientReply, Status> {
///         let site = farcall::metadata::MetadataValue::from_static("berlin");
///         call.metadata_mut().insert("x-site", site);
///         self.0.call(call).await
///     }
/// }
/// ```
pub trait Caller: Send + Sync {
    /// Makes a call of any kind, up to its first answer.
    ///
    /// # Errors
    ///
    /// Returns the status of the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call on the server.
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send;

    /// The method at `path`, as the server of the present connection describes it; `None` where
    /// that is not known at once. A caller that shows calls to layers does not tell: layers see
    /// every call that is made by its path alone in the same way. Not listed: makers of calls that
    /// pass through ask, and channels answer.
    #[doc(hidden)]
    fn described(&self, _path: &str) -> Option<Method> {
        None
    }
}

/// Any caller: a `Channel`, one with layers or an interceptor, a mock. It is what a struct
/// holds that is not to be generic over its channel. Clones share the caller.
///
/// A call costs one allocation more than on the caller itself.
///
/// # Examples
///
/// ```
/// use farcall::mock::MockChannel;
/// # use farcall::{Caller, CallKind, Idempotency, MethodDescriptor};
/// use farcall::{Channel, DynCaller, Request, Response, Status};
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
    caller: Arc<dyn BoxingCaller>,
}

impl DynCaller {
    /// Erases the type of `caller`.
    pub fn new(caller: impl Caller + 'static) -> Self {
        Self { caller: Arc::new(caller) }
    }
}

impl Caller for DynCaller {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        self.caller.call_boxed(call).await
    }

    fn described(&self, path: &str) -> Option<Method> {
        self.caller.described_dyn(path)
    }
}

impl fmt::Debug for DynCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynCaller").finish_non_exhaustive()
    }
}

/// A caller as an object.
trait BoxingCaller: Send + Sync {
    fn call_boxed<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<ClientReply, Status>>;

    fn described_dyn(&self, path: &str) -> Option<Method>;
}

impl<C: Caller> BoxingCaller for C {
    fn call_boxed<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<ClientReply, Status>> {
        Box::pin(self.call(call))
    }

    fn described_dyn(&self, path: &str) -> Option<Method> {
        self.described(path)
    }
}

/// Makes calls through a `tower::Service`: a `Channel` with layers around it, or whatever
/// else takes a [`ClientCall`]. Made by `Channel::layer`.
///
/// The service is cloned for every call, as everywhere in tower; tower's layers share between
/// clones what has to be shared. The call's deadline counts while a layer waits, too.
///
/// # Examples
///
/// Several servers, of which each call takes the one with fewer calls in flight. A channel without
/// a connection is not ready, so that tower passes over it and the calls go to the others. Without
/// any connection calls wait, whatever their [`crate::Readiness`] says: give them deadlines.
///
/// ```
/// use farcall::client::LayeredChannel;
/// use farcall::{Caller, Channel};
/// use tower::ServiceBuilder;
/// use tower::balance::p2c::Balance;
/// use tower::discover::ServiceList;
/// use tower::load::{CompleteOnResponse, PendingRequestsDiscover};
///
/// /// Has to be called in a runtime: the buffer, which makes it `Clone`, is a task.
/// fn balanced(channels: Vec<Channel>) -> impl Caller + Clone {
///     let servers = ServiceList::new(channels);
///     let servers = PendingRequestsDiscover::new(servers, CompleteOnResponse::default());
///     LayeredChannel::new(ServiceBuilder::new().buffer(1024).service(Balance::new(servers)))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct LayeredChannel<S> {
    service: S,
}

impl<S> LayeredChannel<S> {
    /// Makes calls through `service`.
    pub fn new(service: S) -> Self {
        Self { service }
    }
}

impl<S> Caller for LayeredChannel<S>
where
    S: Service<ClientCall, Response = ClientReply> + Clone + Send + Sync,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let call = call.into_owned();
        let limit = call.time_limit();
        let made = async move {
            // `ready` and `call` use one clone: a service may reserve a slot for the clone that was
            // polled, and the reservation goes when that is dropped.
            let mut service = self.service.clone();
            let ready = service.ready().await.map_err(into_status)?;
            ready.call(call).await.map_err(into_status)
        };
        async move { within(limit.as_ref(), pin!(made)).await }
    }
}

/// Shows every request of a caller to one of tonic's interceptors before the call is made. Made by
/// `Channel::intercept`.
///
/// Clones share the interceptor, so that what it counts, it counts over all of them; it runs for
/// one call at a time and must not block.
#[derive(Debug)]
pub struct Intercepted<C, F> {
    caller: C,
    interceptor: Arc<Mutex<F>>,
}

impl<C, F: Interceptor> Intercepted<C, F> {
    /// Shows `interceptor` the requests of `caller`.
    pub fn new(caller: C, interceptor: F) -> Self {
        Self { caller, interceptor: Arc::new(Mutex::new(interceptor)) }
    }

    fn intercept(&self, call: &mut Call<'_>) -> Result<(), Status> {
        let (metadata, extensions) = call.take_head();
        let shown = Request::from_parts(metadata, extensions, ());
        let changed = {
            // After a panic in it, the interceptor answers for its own state.
            let mut interceptor = self.interceptor.lock();
            // On an error the call is left without its head. Its future fails with this status, and
            // nothing sends the call.
            interceptor.call(shown)?
        };
        let (metadata, extensions, ()) = changed.into_parts();
        call.set_head(metadata, extensions);
        Ok(())
    }
}

impl<C: Clone, F> Clone for Intercepted<C, F> {
    fn clone(&self) -> Self {
        Self { caller: self.caller.clone(), interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<C: Caller, F: Interceptor + Send> Caller for Intercepted<C, F> {
    fn call(&self, mut call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        match self.intercept(&mut call) {
            Ok(()) => Either::Left(self.caller.call(call)),
            Err(status) => Either::Right(ready(Err(status))),
        }
    }
}
