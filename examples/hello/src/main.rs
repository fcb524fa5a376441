mod proto {
    farcall::include_proto!("greeter");
}
use farcall::{Request, Response, Status};
use proto::greeter_rpc::{GreeterService, GreeterStub};
use proto::{HelloReply, HelloRequest, greeter_server::Greeter};

struct MyGreeter;

#[farcall::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(&self, req: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello, {}!", req.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = farcall::Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("auto://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());
    let channel = farcall::Channel::connect(&address).await?;
    let request = HelloRequest { name: "world".into() };
    let reply = GreeterStub::new(channel.clone()).say_hello(request).await?;
    println!("{}\nover {}", reply.into_inner().message, channel.path());
    Ok(())
}
