//! Compression: over TCP, for messages from a length on, where the side that receives them says
//! that it accepts it.

use farcall::{Channel, Compression, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

#[tokio::test]
async fn long_messages_are_short_on_the_network() -> anyhow::Result<()> {
    // Accepts compressed requests, and compresses responses of 1 KiB and more.
    let server = Server::builder().compression(Compression::ON);
    let server = server.add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    // The same for the other direction, from 4 KiB on.
    let compression = Compression::ON.with_min_len(4 << 10);
    let channel = Channel::builder(&address)?.compression(compression).connect().await?;
    let sent = || {
        channel
            .endpoints()
            .into_iter()
            .find_map(|it| it.info)
            .map_or(0, |info| info.stats.sent_bytes)
    };

    let name = "Ada Lovelace, ".repeat(1000);
    let stub = GreeterStub::new(channel.clone());
    let before = sent();
    let reply = stub.say_hello(hello(&name)).await?.into_inner();
    assert_eq!(reply.message, format!("Hello, {name}!"));
    assert!(sent() - before < 1000, "14,000 bytes are sent in fewer than 1,000");

    // A stub, as a service, can have a length of its own; this one is never reached.
    let plain = stub.compress_from(usize::MAX);
    let before = sent();
    plain.say_hello(hello(&name)).await?;
    assert!(sent() - before > 14_000);
    Ok(())
}
