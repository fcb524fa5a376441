//! A server whose address and settings are in a file: `config-server farcall.toml`.
//!
//! Which transport its clients may take, its limits and timeouts are `[servers.greeter]` there;
//! nothing in the program changes with them.
#![forbid(unsafe_code)]

use farcall::{Request, Response, Settings, Status};
use farcall_examples::hello::greeter_rpc::GreeterService;
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};

struct MyGreeter;

#[farcall::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    farcall_examples::log_to_stderr();
    let file = std::env::args().nth(1).unwrap_or("farcall.toml".to_owned());
    let (address, server) = Settings::load(file)?.server("greeter")?;
    let listener = server.add_service(GreeterService::new(MyGreeter)).bind(address).await?;
    println!("serving {}", listener.local_address());
    Ok(listener.serve().await?)
}
