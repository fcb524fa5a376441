//! Dropping a call's future cancels it: the handler is dropped where it waits.

use farcall::{Channel, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use tokio::sync::mpsc;

use super::hello;

/// Says when a handler begins and when it is dropped.
struct Watched(mpsc::UnboundedSender<&'static str>);

struct OnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[farcall::async_trait]
impl Greeter for Watched {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let _dropped = OnDrop(self.0.clone());
        let _ = self.0.send("begun");
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_drops_its_handler() -> anyhow::Result<()> {
    let (tell, mut events) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(GreeterService::new(Watched(tell)));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let stub = GreeterStub::new(Channel::connect(&address).await?);
    let call = tokio::spawn(async move { stub.say_hello(hello("Ada")).await });
    assert_eq!(events.recv().await, Some("begun"));
    // As `tokio::select!` or a timeout would drop it.
    call.abort();
    assert_eq!(events.recv().await, Some("dropped"));
    Ok(())
}
