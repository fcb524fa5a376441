//! Servers behind load balancers: the PROXY protocol, TLS that ends before the server, and health
//! checks.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

mod balancer;
mod health_check;
mod proxied;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use farcall::{
    Channel, Listener, PeerInfo, Request, Response, Server, ServerBuilder, Status, async_trait,
};
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::{TestServiceService, TestServiceStub};
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{Empty, SimpleRequest, SimpleResponse};
use tokio::sync::Notify;
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Tells its callers their address. `EmptyCall` waits.
#[derive(Debug, Clone, Default)]
struct Where {
    entered: Arc<Notify>,
    go_on: Arc<Notify>,
}

#[async_trait]
impl TestService for Where {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.entered.notify_one();
        self.go_on.notified().await;
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        _: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let peer = PeerInfo::current().and_then(|peer| peer.addresses.peer);
        let username = peer.map_or_else(String::new, |peer| peer.to_string());
        Ok(Response::new(SimpleResponse { username, ..SimpleResponse::default() }))
    }
}

/// Serves on loopback; the server, and the authority of its address.
async fn serve_with(builder: ServerBuilder, service: Where) -> (Server, String) {
    let builder = builder.add_service(TestServiceService::new(service));
    let listener: Listener = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let server = listener.server().clone();
    tokio::spawn(listener.serve());
    (server, authority)
}

async fn serve(builder: ServerBuilder) -> String {
    serve_with(builder, Where::default()).await.1
}

/// The caller's address, as the server knows it.
async fn address_seen(channel: &Channel) -> Result<String, Status> {
    let stub = TestServiceStub::new(channel.clone());
    Ok(within(stub.unary_call(SimpleRequest::default())).await?.into_inner().username)
}

/// The same of tonic's client.
async fn address_seen_by_grpc(authority: &str) -> Result<String, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).unwrap();
    let mut client = TestServiceClient::new(endpoint.connect_lazy());
    Ok(within(client.unary_call(SimpleRequest::default())).await?.into_inner().username)
}
