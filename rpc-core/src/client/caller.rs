//! `Caller`: what generated stubs make calls through, and `DynCaller`, a type-erased one.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;

use super::{Call, ClientReply};
use crate::Method;

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
    /// With the status of the call.
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
