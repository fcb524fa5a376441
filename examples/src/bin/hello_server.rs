//! Hello world, the server: `hello-server auto://0.0.0.0:7000`.
#![forbid(unsafe_code)]

use farcall::{Request, Response, Status};
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
    let address = std::env::args().nth(1).unwrap_or("auto://127.0.0.1:7000".to_owned());
    let server = farcall::Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind(address).await?;
    println!("serving {}", listener.local_address());
    Ok(listener.serve().await?)
}
