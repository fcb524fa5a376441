//! One thing a file, each a program's worth of code that is run as a test:
//! `cargo test -p farcall-examples --test topics deadlines`.

mod all_kinds;
mod both;
mod cancellation;
mod compression;
mod configuration;
mod cores;
mod deadlines;
mod discovery;
mod errors;
mod faults;
mod grpc;
mod in_process;
mod interceptors;
mod layers;
mod lent_buffers;
mod operating;
mod paths;
mod replicas;
mod retries;
mod schemes;
mod service_config;
mod shutdown;
mod tls;
mod traces;
mod uds;

use farcall::{Request, Response, Status};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};

/// The service that most topics serve.
#[derive(Debug, Default)]
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

fn hello(name: &str) -> HelloRequest {
    HelloRequest { name: name.to_owned() }
}
