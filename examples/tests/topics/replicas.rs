//! Several servers of one service behind one stub: tower's balancer chooses one for each call, and
//! passes over one that is gone. A call that no server has seen is made again by its channel.

use std::time::Duration;

use farcall::client::LayeredChannel;
use farcall::{Address, Caller, Channel, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tokio::sync::oneshot;
use tower::ServiceBuilder;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequestsDiscover};

use super::{MyGreeter, hello};

fn balanced(channels: Vec<Channel>) -> GreeterStub<impl Caller + Clone> {
    // Of two that are ready, the one with fewer calls in flight.
    let servers = ServiceList::new(channels);
    let servers = PendingRequestsDiscover::new(servers, CompleteOnResponse::default());
    let balance = ServiceBuilder::new().buffer(1024).service(Balance::new(servers));
    GreeterStub::new(LayeredChannel::new(balance))
}

/// A server, and what shuts it down.
async fn serve() -> anyhow::Result<(Address, oneshot::Sender<()>)> {
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(listener.serve().with_graceful_shutdown(async {
        let _ = stopped.await;
    }));
    Ok((address, stop))
}

#[tokio::test]
async fn a_server_that_shuts_down_fails_no_call() -> anyhow::Result<()> {
    let (first, stop) = serve().await?;
    let (second, _running) = serve().await?;
    let channels = [Channel::connect(&first).await?, Channel::connect(&second).await?];
    let stub = balanced(channels.to_vec());
    for _ in 0..20 {
        stub.say_hello(hello("both")).await?;
    }
    drop(stop);
    let gone = async {
        while channels[0].endpoints().into_iter().find_map(|it| it.info).is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await?;
    for _ in 0..20 {
        stub.say_hello(hello("the other")).await?;
    }
    Ok(())
}
