//! tonic's interceptors around a caller.

use std::future::{Future, ready};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::Either;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::client::{Call, Caller, ClientReply};
use crate::layer::RequestHead;

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
            // Ignore poisoning: the interceptor's own state is its responsibility.
            let mut interceptor = self.interceptor.lock().unwrap_or_else(PoisonError::into_inner);
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
