//! tonic's interceptors around a service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::ServiceDescriptor;
use crate::server::call::head::Head;
use crate::server::{HandlerFuture, ServerCall, Service};

/// A service whose requests one of tonic's interceptors sees first. Made by [`intercepted`].
#[derive(Debug)]
pub struct InterceptedService<S, F> {
    service: S,
    interceptor: Mutex<F>,
}

/// Shows `interceptor` every request of `service`, of any kind of call, before its handler: it may
/// change metadata and extensions, or refuse the call with a status.
///
/// It runs where requests arrive, for one call at a time, and must not block; what has to wait is
/// a layer, see `ServerBuilder::layer`.
///
/// # Examples
///
/// ```
/// use farcall::server::intercepted;
/// use farcall::{Request, Server, Service, Status};
///
/// fn authorized(request: Request<()>) -> Result<Request<()>, Status> {
///     match request.metadata().get("authorization") {
///         Some(token) if token == "Bearer letmein" => Ok(request),
///         _ => Err(Status::unauthenticated("who is there?")),
///     }
/// }
///
/// # fn example(greeter: impl Service) {
/// let server = Server::builder().add_service(intercepted(greeter, authorized)).build();
/// # drop(server);
/// # }
/// ```
pub fn intercepted<S, F>(service: S, interceptor: F) -> InterceptedService<S, F>
where
    S: Service,
    F: Interceptor + Send + 'static,
{
    InterceptedService { service, interceptor: Mutex::new(interceptor) }
}

impl<S, F: Interceptor> InterceptedService<S, F> {
    fn intercept(&self, call: &mut ServerCall) -> Result<(), Status> {
        let (metadata, extensions) = call.take_head()?;
        let shown = Request::from_parts(metadata, extensions, ());
        // A panic ends its own call, as a handler's does; the lock is dropped inside.
        let changed = catch_unwind(AssertUnwindSafe(|| {
            self.interceptor.lock().unwrap_or_else(PoisonError::into_inner).call(shown)
        }));
        let panicked = |_| Err(Status::internal("the interceptor panicked"));
        let (metadata, extensions, ()) = changed.unwrap_or_else(panicked)?.into_parts();
        call.head = Head::Decoded(Box::new((metadata, extensions)));
        Ok(())
    }
}

impl<S: Service, F: Interceptor + Send + 'static> Service for InterceptedService<S, F> {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.service.descriptor()
    }

    fn call(&self, method: usize, mut call: ServerCall) -> HandlerFuture {
        match self.intercept(&mut call) {
            Ok(()) => self.service.call(method, call),
            Err(status) => call.fail(status),
        }
    }
}
