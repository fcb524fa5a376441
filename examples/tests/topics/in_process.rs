//! A service and its client in one process, over queues and without a socket: the quickest way to
//! test what is behind a stub.

use farcall::{Channel, Code, Server};
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

/// A program may learn only at its start which services to offer.
#[tokio::test]
async fn a_service_that_is_left_out_is_unimplemented() -> anyhow::Result<()> {
    for is_offered in [true, false] {
        let greeter = is_offered.then(|| GreeterService::new(MyGreeter));
        let address = format!("inproc://topics-optional-{is_offered}");
        let listener = Server::builder().add_optional_service(greeter).bind(&address).await?;
        tokio::spawn(listener.serve());

        let stub = GreeterStub::connect(&address).await?;
        match stub.say_hello(hello("you")).await {
            Ok(reply) => assert!(is_offered, "{reply:?}"),
            Err(status) => assert_eq!((is_offered, status.code()), (false, Code::Unimplemented)),
        }
    }
    Ok(())
}
