//! A trace that goes through two servers, exported by OTLP.

use farcall::client::LayeredChannel;
use farcall::layer::{Trace, TraceLayer};
use farcall::otel::Otlp;
use farcall::{Channel, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use tracing_subscriber::layer::SubscriberExt;

use super::hello;

/// Answers with the id of the trace that it is called in.
struct Back;

#[farcall::async_trait]
impl Greeter for Back {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let parent = request.metadata().get("traceparent");
        let parent = parent.and_then(|parent| parent.to_str().ok()).unwrap_or("no trace");
        let message = parent.split('-').nth(1).unwrap_or(parent).to_owned();
        Ok(Response::new(HelloReply { message }))
    }
}

/// Passes each call on.
struct Front {
    back: GreeterStub<LayeredChannel<Trace<Channel>>>,
}

#[farcall::async_trait]
impl Greeter for Front {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        self.back.say_hello(request.into_inner()).await
    }
}

#[tokio::test]
async fn calls_of_a_handler_belong_to_its_trace() -> anyhow::Result<()> {
    let otlp = Otlp::new("orders")?;
    let subscriber = tracing_subscriber::registry().with(otlp.layer());
    let _until_the_end = tracing::subscriber::set_default(subscriber);

    let traces = TraceLayer::sampled(0.01);
    let builder = Server::builder().add_service(GreeterService::new(Back)).layer(traces);
    let listener = builder.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let back = GreeterStub::new(channel.layer(traces));
    let server = Server::builder().add_service(GreeterService::new(Front { back })).layer(traces);
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    // Its caller has a trace, which is not sampled: nothing is exported.
    let stub = GreeterStub::new(Channel::connect(&address).await?);
    let mut request = Request::new(hello("you"));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    request.metadata_mut().insert("traceparent", parent.parse()?);
    let reply = stub.say_hello(request).await?;
    assert_eq!(reply.into_inner().message, "0af7651916cd43dd8448eb211c80319c");
    otlp.shutdown().await?;
    Ok(())
}
