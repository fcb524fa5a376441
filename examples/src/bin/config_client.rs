//! A client whose target and settings are in a file: `config-client farcall.toml`.
#![forbid(unsafe_code)]

use farcall::Settings;
use farcall_examples::hello::HelloRequest;
use farcall_examples::hello::greeter_rpc::GreeterStub;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    farcall_examples::log_to_stderr();
    let file = std::env::args().nth(1).unwrap_or("farcall.toml".to_owned());
    let channel = Settings::load(file)?.channel("greeter")?;
    let request = HelloRequest { name: "world".to_owned() };
    let reply = GreeterStub::new(channel.clone()).say_hello(request).await?.into_inner();
    println!("{} over {}", reply.message, channel.path());
    Ok(())
}
