//! A service and its client in one process, over queues and without a socket: the quickest way to
//! test what is behind a stub.

use farcall::{Channel, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

#[tokio::test]
async fn a_call_without_a_socket() -> anyhow::Result<()> {
    // The name is the process's: each test takes one of its own.
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("inproc://topics-in-process").await?;
    tokio::spawn(listener.serve());

    let channel = Channel::connect("inproc://topics-in-process").await?;
    let reply = GreeterStub::new(channel).say_hello(hello("world")).await?;
    assert_eq!(reply.into_inner().message, "Hello, world!");
    Ok(())
}
