//! A deadline goes with its call: the handler knows it, calls that the handler makes inherit it,
//! and both sides end the call when it has passed.

use std::time::Duration;

use farcall::{CallContext, Channel, Code, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};

use super::hello;

/// Never answers; it is dropped at the call's deadline.
struct Forever;

#[farcall::async_trait]
impl Greeter for Forever {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let context = CallContext::current().expect("a handler has one");
        assert!(context.deadline().is_some(), "the client's timeout has come along");
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(Forever));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    // For all calls of a channel; `unary_timeout` would leave streams alone.
    let builder = Channel::builder(&address)?.timeout(Duration::from_millis(100));
    let stub = GreeterStub::new(builder.connect().await?);
    let status = stub.say_hello(hello("all")).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);

    // For one call, as with tonic.
    let mut request = Request::new(hello("one"));
    request.set_timeout(Duration::from_millis(50));
    let status = stub.say_hello(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    Ok(())
}
