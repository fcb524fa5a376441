//! tonic's interceptors as a tower layer, on either side.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::{Either, MapErr, Ready, ready};
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};
use tower::{BoxError, Layer, Service};

use super::into_status;

/// A request whose metadata and extensions can be taken out and put back.
pub trait RequestHead {
    /// Takes metadata and extensions, and leaves none.
    fn take_head(&mut self) -> (MetadataMap, Extensions);

    /// Puts others in their place.
    fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions);
}

/// Shows every request to one of tonic's interceptors: it may change metadata and extensions, or
/// refuse the call with a status. It takes the place of `tonic::service::InterceptorLayer`.
///
/// The same layer serves clients and servers, and stands among other layers of a
/// `tower::ServiceBuilder`. What it wraps shares the interceptor, which runs for one call at a time
/// and must not block. [`intercepted`](crate::server::intercepted) costs less for one service of a
/// server, and `Channel::intercept` for one channel.
///
/// # Examples
///
/// ```
/// use farcall::layer::InterceptorLayer;
/// use farcall::{Request, Server, Status};
///
/// fn authorized(request: Request<()>) -> Result<Request<()>, Status> {
///     match request.metadata().get("authorization") {
///         Some(token) if token == "Bearer letmein" => Ok(request),
///         _ => Err(Status::unauthenticated("no token, or a wrong one")),
///     }
/// }
///
/// // Around all services.
/// let server = Server::builder().layer(InterceptorLayer::new(authorized)).build();
/// # drop(server);
/// ```
pub struct InterceptorLayer<F> {
    interceptor: Arc<Mutex<F>>,
}

impl<F: Interceptor> InterceptorLayer<F> {
    /// Shows requests to `interceptor`.
    pub fn new(interceptor: F) -> Self {
        Self { interceptor: Arc::new(Mutex::new(interceptor)) }
    }
}

impl<S, F> Layer<S> for InterceptorLayer<F> {
    type Service = Intercept<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Intercept { inner, interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<F> Clone for InterceptorLayer<F> {
    fn clone(&self) -> Self {
        Self { interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<F> fmt::Debug for InterceptorLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterceptorLayer").finish_non_exhaustive()
    }
}

/// The service that [`InterceptorLayer`] makes.
pub struct Intercept<S, F> {
    inner: S,
    interceptor: Arc<Mutex<F>>,
}

impl<S, F: Interceptor> Intercept<S, F> {
    fn intercept(&self, request: &mut impl RequestHead) -> Result<(), Status> {
        let (metadata, extensions) = request.take_head();
        let shown = Request::from_parts(metadata, extensions, ());
        // After a panic the interceptor goes on with the state that it left behind.
        let mut interceptor = self.interceptor.lock();
        let (metadata, extensions, ()) = interceptor.call(shown)?.into_parts();
        request.set_head(metadata, extensions);
        Ok(())
    }
}

impl<S, F, R> Service<R> for Intercept<S, F>
where
    R: RequestHead,
    S: Service<R, Error: Into<BoxError>>,
    F: Interceptor,
{
    type Response = S::Response;
    type Error = Status;
    type Future =
        Either<MapErr<S::Future, fn(S::Error) -> Status>, Ready<Result<S::Response, Status>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(into_status)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        match self.intercept(&mut request) {
            Ok(()) => Either::Left(self.inner.call(request).map_err(into_status)),
            Err(status) => Either::Right(ready(Err(status))),
        }
    }
}

impl<S: Clone, F> Clone for Intercept<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Intercept<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercept").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[derive(Default)]
    struct Head(MetadataMap, Extensions);

    impl RequestHead for Head {
        fn take_head(&mut self) -> (MetadataMap, Extensions) {
            (std::mem::take(&mut self.0), std::mem::take(&mut self.1))
        }

        fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions) {
            (self.0, self.1) = (metadata, extensions);
        }
    }

    #[tokio::test]
    async fn an_interceptor_changes_requests_or_refuses_them() {
        let mut calls = 0_u32;
        let layer = InterceptorLayer::new(move |mut request: Request<()>| {
            calls += 1;
            request.extensions_mut().insert(calls);
            request.metadata_mut().insert("x-seen", calls.into());
            if calls > 2 { Err(Status::resource_exhausted("twice is enough")) } else { Ok(request) }
        });
        let answer = |request: Head| async move {
            let seen = request.0.get("x-seen").and_then(|value| value.to_str().ok()?.parse().ok());
            Ok::<_, BoxError>((seen, request.1.get::<u32>().copied()))
        };
        let [one, other] = [layer.clone(), layer].map(|layer| layer.layer(service_fn(answer)));
        // All that it wraps share what it counts.
        assert_eq!(one.clone().oneshot(Head::default()).await.unwrap(), (Some(1), Some(1)));
        assert_eq!(other.oneshot(Head::default()).await.unwrap(), (Some(2), Some(2)));
        let refused = one.oneshot(Head::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
}
