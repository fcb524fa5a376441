//! The path of a channel, and the RDMA handle that servers and channels share.

use std::sync::OnceLock;

use farcall::{Channel, MethodCompression, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

#[tokio::test]
async fn a_channel_tells_its_path() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string().replace("tcp://", "auto://");
    tokio::spawn(listener.serve());

    let channel = Channel::connect(address).await?;
    println!("{}", channel.path());
    GreeterStub::new(channel.clone()).say_hello(hello("path")).await?;
    assert!(channel.path().to_string().starts_with("tcp (rdma: "));
    Ok(())
}

/// On a host without a device, too: nothing is opened before a connection asks for RDMA.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn one_handle_serves_both_sides() -> anyhow::Result<()> {
    use farcall::{Rdma, RdmaConfig};

    let rdma = Rdma::new(RdmaConfig::default().with_devices(vec!["mlx5_0".to_owned()]));
    let inventory = Channel::builder("auto://127.0.0.1:1")?.rdma(&rdma).connect_lazy();
    let orders = Server::builder().rdma(&rdma).add_service(GreeterService::new(MyGreeter));
    println!("{:?} {:?}", rdma.devices(), rdma.lanes());
    assert!(!inventory.path().is_upgraded());
    drop(orders);
    Ok(())
}

static CHANNEL: OnceLock<Channel> = OnceLock::new();

fn channel() -> Channel {
    CHANNEL
        .get_or_init(|| {
            let builder = Channel::builder("auto://127.0.0.1:1").expect("a valid address");
            builder.connect_lazy()
        })
        .clone()
}

#[test]
fn a_channel_can_be_made_outside_of_a_runtime() {
    assert!(!channel().path().is_upgraded());
}

#[tokio::test]
async fn compression_is_by_method() -> anyhow::Result<()> {
    use farcall::Compression;

    // Images are compressed already, and lists are worth it early.
    let by_method = MethodCompression::default()
        .with_len("shop.Images", u32::MAX)
        .with_len("/shop.Catalog/List", 256);
    let server = Server::builder().compression(Compression::ON).method_compression(by_method);
    // The server has neither, and says so.
    assert!(server.bind("inproc://topics-compression").await.is_err());
    Ok(())
}
