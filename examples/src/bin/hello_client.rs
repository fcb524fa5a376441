//! Hello world, the client: `hello-client auto://10.0.0.1:7000`.
#![forbid(unsafe_code)]

use farcall_examples::hello::HelloRequest;
use farcall_examples::hello::greeter_rpc::GreeterStub;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("auto://127.0.0.1:7000".to_owned());
    let channel = farcall::Channel::connect(address).await?;
    let request = HelloRequest { name: "world".to_owned() };
    let reply = GreeterStub::new(channel.clone()).say_hello(request).await?.into_inner();
    println!("{} over {}", reply.message, channel.path());
    Ok(())
}
