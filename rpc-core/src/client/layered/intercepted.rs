//! tonic's interceptors around a caller.

use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use prost::Message;
use tonic::service::Interceptor;
use tonic::{GrpcMethod, Request, Response, Status, Streaming};

use crate::{Caller, MethodDescriptor};

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

    fn intercept<T>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<T>,
    ) -> Result<Request<T>, Status> {
        let (metadata, mut extensions, message) = request.into_parts();
        // As tonic's clients tell interceptors which method is called.
        extensions.insert(GrpcMethod::new(method.service(), method.name()));
        let shown = Request::from_parts(metadata, extensions, ());
        let changed = {
            // Ignore poisoning: the interceptor's own state is its responsibility.
            let mut interceptor = self.interceptor.lock().unwrap_or_else(PoisonError::into_inner);
            interceptor.call(shown)?
        };
        let (metadata, extensions, ()) = changed.into_parts();
        Ok(Request::from_parts(metadata, extensions, message))
    }
}

impl<C: Clone, F> Clone for Intercepted<C, F> {
    fn clone(&self) -> Self {
        Self { caller: self.caller.clone(), interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<C: Caller, F: Interceptor + Send> Caller for Intercepted<C, F> {
    async fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> Result<Response<Resp>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        self.caller.unary(method, self.intercept(method, request)?).await
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
        self.caller.server_streaming(method, self.intercept(method, request)?).await
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
        self.caller.client_streaming(method, self.intercept(method, request)?).await
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
        self.caller.streaming(method, self.intercept(method, request)?).await
    }
}
