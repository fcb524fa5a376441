//! A server that ends in order: it takes no new calls, and those in flight are answered.

use std::time::Duration;

use farcall::{Channel, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use tokio::sync::{mpsc, oneshot};

use super::hello;

/// Says that a call has come, and answers it when it is told to.
struct Slow {
    entered: mpsc::Sender<oneshot::Sender<()>>,
}

#[farcall::async_trait]
impl Greeter for Slow {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let (go_on, may_go_on) = oneshot::channel();
        let gone = |_| Status::aborted("the test has ended");
        self.entered.send(go_on).await.map_err(|_| Status::aborted("the test has ended"))?;
        may_go_on.await.map_err(gone)?;
        Ok(Response::new(HelloReply { message: request.into_inner().name }))
    }
}

#[tokio::test]
async fn calls_in_flight_are_answered() -> anyhow::Result<()> {
    let (entered, mut calls) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = Server::builder()
        .add_service(GreeterService::new(Slow { entered }))
        // How long calls in flight may take; 30 s by default.
        .drain_timeout(Duration::from_secs(20))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let address = listener.local_address().clone();
    // In a program the signal is `tokio::signal::ctrl_c()`.
    let serving = tokio::spawn(listener.serve().with_graceful_shutdown(async {
        let _ = stopped.await;
    }));

    let stub = GreeterStub::new(Channel::connect(&address).await?);
    let call = tokio::spawn(async move { stub.say_hello(hello("late")).await });
    let go_on = calls.recv().await.expect("the handler has the call");
    drop(stop);
    let _ = go_on.send(());
    assert_eq!(call.await??.into_inner().message, "late");
    serving.await??;
    assert!(Channel::connect(&address).await.is_err(), "nothing listens any more");
    Ok(())
}
