//! One `impl` behind farcall and behind tonic's own server, for gRPC clients that stay.

use std::sync::Arc;

use farcall_examples::hello::greeter_client::GreeterClient;
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::GreeterServer;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Endpoint;

use super::{MyGreeter, hello};

#[tokio::test]
async fn one_service_answers_both() -> anyhow::Result<()> {
    let greeter = Arc::new(MyGreeter);

    let ours = farcall::Server::builder().add_service(GreeterService::from_arc(greeter.clone()));
    let ours = ours.bind("auto://127.0.0.1:0").await?;
    let our_address = ours.local_address().clone();
    tokio::spawn(ours.serve());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let their_address = format!("http://{}", listener.local_addr()?);
    let theirs = tonic::transport::Server::builder().add_service(GreeterServer::from_arc(greeter));
    tokio::spawn(theirs.serve_with_incoming(TcpListenerStream::new(listener)));

    let stub = GreeterStub::new(farcall::Channel::connect(&our_address).await?);
    assert_eq!(stub.say_hello(hello("farcall")).await?.into_inner().message, "Hello, farcall!");
    let channel = Endpoint::from_shared(their_address)?.connect().await?;
    let mut client = GreeterClient::new(channel);
    assert_eq!(client.say_hello(hello("gRPC")).await?.into_inner().message, "Hello, gRPC!");
    Ok(())
}
