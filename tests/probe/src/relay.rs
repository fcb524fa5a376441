//! A service whose handler a test writes down in place.

use std::future::Future;

use farcall::{Request, Response, Status, async_trait};
use futures::StreamExt;
use futures::stream::once;
use tonic::codegen::BoxStream;

use crate::proto::relay_rpc::RelayService;
use crate::proto::relay_server::Relay as RelayRpc;
use crate::proto::{EchoReply, EchoRequest};

/// The service.
#[derive(Debug)]
pub struct Relay<F>(F);

/// A service that does what `handler` says.
pub fn relay<F, Fut>(handler: F) -> RelayService<Relay<F>>
where
    F: Fn(Request<EchoRequest>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + Send + 'static,
{
    RelayService::new(Relay(handler))
}

#[async_trait]
impl<F, Fut> RelayRpc for Relay<F>
where
    F: Fn(Request<EchoRequest>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + Send + 'static,
{
    type ListenStream = BoxStream<EchoReply>;

    async fn ask(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        (self.0)(request).await?;
        Ok(Response::new(EchoReply::default()))
    }

    async fn listen(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        let done = (self.0)(request);
        let message = once(done).map(|done| done.map(|()| EchoReply::default()));
        Ok(Response::new(Box::pin(message)))
    }
}
