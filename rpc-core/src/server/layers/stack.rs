//! A server's layers, type-erased.

use std::fmt;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tonic::Status;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{ServerRequest, ServerResponse};
use crate::layer::into_status;

/// The service that a server's layer is put around: the handlers, or the layers inside of it.
///
/// The future that it returns sends a stream's messages while it is polled, so that a layer which
/// answers before that future has ended has to drop it first.
#[derive(Debug, Clone, Default)]
pub struct ServerStack(Option<BoxCloneSyncService<ServerRequest, ServerResponse, Status>>);

impl ServerStack {
    /// This stack with a layer around it.
    pub(in crate::server) fn within<L>(self, layer: &L) -> Self
    where
        L: Layer<Self>,
        L::Service: Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<ServerRequest>>::Error: Into<BoxError>,
    {
        let layered = layer.layer(self).map_err(into_status);
        Self(Some(BoxCloneSyncService::new(layered)))
    }
}

impl Service<ServerRequest> for ServerStack {
    type Response = ServerResponse;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ServerResponse, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &mut self.0 {
            Some(layered) => layered.poll_ready(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: ServerRequest) -> Self::Future {
        match &mut self.0 {
            Some(layered) => layered.call(request),
            None => Box::pin(request.run()),
        }
    }
}

/// Layers that wait for the server to be built, the outermost first.
#[derive(Default)]
pub(in crate::server) struct Layers(Vec<Apply>);

/// Puts a layer around what is inside of it.
struct Apply(Box<dyn FnOnce(ServerStack) -> ServerStack + Send + Sync>);

impl Layers {
    pub(in crate::server) fn push<L>(&mut self, layer: L)
    where
        L: Layer<ServerStack> + Send + Sync + 'static,
        L::Service: Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<ServerRequest>>::Error: Into<BoxError>,
    {
        self.0.push(Apply(Box::new(move |inner| inner.within(&layer))));
    }

    /// The layers around the handlers; `None` when there are none.
    pub(in crate::server) fn build(self) -> Option<ServerStack> {
        let is_empty = self.0.is_empty();
        let stack = self.0.into_iter().rev();
        let stack = stack.fold(ServerStack::default(), |inner, Apply(layer)| layer(inner));
        (!is_empty).then_some(stack)
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}
