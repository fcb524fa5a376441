//! Calls over a Unix socket. `unix://@name` would be an abstract name, without a file.

use farcall::{Channel, Path, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

#[tokio::test]
async fn a_call_over_a_unix_socket() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let address = format!("unix://{}/greeter.sock", folder.path().display());
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind(&address).await?;
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let reply = GreeterStub::new(channel.clone()).say_hello(hello("world")).await?;
    assert_eq!(reply.into_inner().message, "Hello, world!");
    assert_eq!(channel.path(), Path::Direct { transport: "unix" });
    Ok(())
}
