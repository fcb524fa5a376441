//! A client's behaviour when the network or its server fails, in one process and in no time:
//! tokio's clock is paused, so that a minute of a timeout passes at once.

use std::time::Duration;

use farcall::testing::{Direction, TestServer};
use farcall::{Channel, Code, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

fn serve() -> TestServer {
    TestServer::start(Server::builder().add_service(GreeterService::new(MyGreeter)))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left_at_the_timeout() -> anyhow::Result<()> {
    let server = serve();
    let builder = Channel::builder("tcp://greeter:7000")?.timeout(Duration::from_secs(2));
    let stub = GreeterStub::new(builder.connect_with_connector(server.link().connector()));
    server.link().pause(Direction::ToClient);
    let status = stub.say_hello(hello("you")).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    server.link().resume(Direction::ToClient);
    assert_eq!(stub.say_hello(hello("you")).await?.into_inner().message, "Hello, you!");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_is_made_anew() -> anyhow::Result<()> {
    let server = serve();
    let stub = GreeterStub::new(server.channel());
    stub.say_hello(hello("you")).await?;
    server.link().cut();
    // The clock moves when all tasks wait: both ends have found out by then. A call that is made
    // at once would be in flight on the connection that ends.
    tokio::time::sleep(Duration::from_millis(1)).await;
    stub.say_hello(hello("you again")).await?;
    server.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_distant_server_costs_a_round_trip_a_call() -> anyhow::Result<()> {
    let server = serve();
    let stub = GreeterStub::new(server.channel());
    stub.say_hello(hello("you")).await?;
    server.link().set_latency(Duration::from_millis(40));
    let began = tokio::time::Instant::now();
    stub.say_hello(hello("you")).await?;
    assert_eq!(began.elapsed().as_millis(), 80);
    Ok(())
}
