//! gRPC: clients that tonic has generated over a farcall channel, tonic's health service behind a
//! farcall server, clients of gRPC at the same port, and `grpc://`.

use anyhow::Context as _;
use farcall::grpc::GrpcOver;
use farcall::{Channel, Server};
use farcall_examples::hello::greeter_client::GreeterClient;
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response};

use super::{MyGreeter, hello};

#[tokio::test]
async fn tonics_clients_call_over_a_channel() -> anyhow::Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .add_service(GreeterService::new(MyGreeter))
        .add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET);
    let listener = server.bind("auto://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let over = GrpcOver::new(Channel::connect(&address).await?);
    let mut greeter = GreeterClient::new(over.clone());
    assert_eq!(greeter.say_hello(hello("gRPC")).await?.into_inner().message, "Hello, gRPC!");

    let mut health = HealthClient::new(over);
    let request = HealthCheckRequest { service: "greeter.Greeter".to_owned() };
    assert!(health.check(request.clone()).await.is_err(), "nothing was said of it yet");
    reporter.set_service_status("greeter.Greeter", ServingStatus::Serving).await;
    assert!(health.check(request).await.is_ok());
    Ok(())
}

#[tokio::test]
async fn watchers_are_told_that_the_server_drains() -> anyhow::Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET)
        .on_drain(async move { reporter.set_service_status("", ServingStatus::NotServing).await });
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    let (shutdown, shut_down) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(listener.serve().with_graceful_shutdown(async { drop(shut_down.await) }));

    let mut health = HealthClient::new(GrpcOver::new(Channel::connect(&address).await?));
    let mut updates = health.watch(HealthCheckRequest::default()).await?.into_inner();
    let update = updates.message().await?.context("an update")?;
    assert_eq!(update.status(), health_check_response::ServingStatus::Serving);
    let _ = shutdown.send(());
    let update = updates.message().await?.context("an update")?;
    assert_eq!(update.status(), health_check_response::ServingStatus::NotServing);
    Ok(())
}

#[tokio::test]
async fn one_port_serves_clients_of_grpc() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let authority = address.trim_start_matches("tcp://");

    let channel = Endpoint::from_shared(format!("http://{authority}"))?.connect().await?;
    let mut client = GreeterClient::new(channel);
    assert_eq!(client.say_hello(hello("HTTP/2")).await?.into_inner().message, "Hello, HTTP/2!");

    let stub = GreeterStub::connect(format!("grpc://{authority}")).await?;
    assert_eq!(stub.say_hello(hello("stub")).await?.into_inner().message, "Hello, stub!");
    Ok(())
}
