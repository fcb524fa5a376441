//! tower's layers around calls: of a server, of one service, and of a channel.

use std::time::Duration;

use farcall::client::ClientCall;
use farcall::layer::TraceLayer;
use farcall::server::{ServerRequest, layered};
use farcall::{Channel, Code, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tower::ServiceBuilder;

use super::{MyGreeter, hello};

#[tokio::test]
async fn a_call_passes_through_layers() -> anyhow::Result<()> {
    // Around one service: calls without a site are refused.
    let known_sites = tower::filter::FilterLayer::new(|request: ServerRequest| {
        match request.metadata().get("x-site") {
            Some(_) => Ok(request),
            None => Err(Status::permission_denied("from nowhere")),
        }
    });
    let service = layered(GreeterService::new(MyGreeter), known_sites);
    let listener = Server::builder()
        .add_service(service)
        // Around all services: a span for each call, and no more than a hundred at a time.
        .layer(ServiceBuilder::new().layer(TraceLayer::new()).concurrency_limit(100))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let status = GreeterStub::new(channel.clone()).say_hello(hello("you")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);

    let from_berlin =
        channel.layer(ServiceBuilder::new().timeout(Duration::from_secs(20)).map_request(
            |mut call: ClientCall| {
                let site = farcall::metadata::MetadataValue::from_static("berlin");
                call.metadata_mut().insert("x-site", site);
                call
            },
        ));
    let reply = GreeterStub::new(from_berlin).say_hello(hello("you")).await?;
    assert_eq!(reply.into_inner().message, "Hello, you!");
    Ok(())
}
