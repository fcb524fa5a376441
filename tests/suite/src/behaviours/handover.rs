//! A server that shuts down under load, with another one in its place: no call is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farcall::{Code, NotExecuted, Response, ServeError, Server, Status};
use futures::future::BoxFuture;
use rpc_core::connect::Bootstrap;
use rpc_core::server::{Listen, Offers};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::echo::echo;
use crate::OneServer as _;
use crate::failure::{check, check_eq, refused};
use crate::harness::place::{Place, connect};
use crate::payload::{check_payload, payload};
use crate::proto::probe_rpc::{ProbeService, ProbeStub};
use crate::proto::{EchoReply, EchoRequest, ParkRequest};
use crate::{Failure, Harness, Probe};
use farcall_probe::watch::WatchEvent;

const TASK_COUNT: usize = 8;

/// Rounds of shutting one server down and going on with the next.
const ROUND_COUNT: usize = 5;

/// Calls that each task makes on each server at least.
const CALLS_A_ROUND: u64 = 20;

/// Between two looks at the counts.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// One place, from which servers take connections one after the other: the port is never shut.
#[derive(Debug, Clone)]
pub(super) struct SharedPlace {
    place: Arc<Mutex<Place>>,
    offers: Offers,
}

impl SharedPlace {
    pub(super) fn new(place: Place) -> Self {
        let offers = place.offers();
        Self { place: Arc::new(Mutex::new(place)), offers }
    }
}

impl Listen for SharedPlace {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async { self.place.lock().await.accept().await })
    }

    fn offers(&self) -> Offers {
        self.offers.clone()
    }
}

/// A server on the shared endpoint, and the way to shut it down.
pub(super) struct Serving {
    shutdown: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(super) fn start(server: &Server, shared: &SharedPlace) -> Self {
        let (shutdown, shut_down) = oneshot::channel();
        let serving = server.serve_incoming(shared.clone());
        let serving = serving.with_graceful_shutdown(async { drop(shut_down.await) });
        Self { shutdown, served: tokio::spawn(serving) }
    }

    /// Stops polling it: its connections end at once.
    pub(super) fn abort(self) {
        self.served.abort();
    }

    pub(super) async fn stop(self) -> Result<(), Failure> {
        // It serves until it is told.
        let _ = self.shutdown.send(());
        Ok(self.served.await??)
    }
}

/// Calls until the first failure, and gives its status.
async fn call_on(stub: ProbeStub, first_seed: u64, calls: Arc<AtomicU64>) -> Status {
    for seed in first_seed.. {
        // Every seventh is large, so that some are on their way when a server goes.
        let len = if seed % 7 == 6 { 300_000 } else { 1000 };
        let sent: Bytes = payload(seed, len);
        let request = EchoRequest { payload: sent.clone(), ..Default::default() };
        match stub.echo(request).await.map(Response::into_inner) {
            Ok(EchoReply { payload, .. }) if payload == sent => {}
            Ok(_) => return Status::data_loss("the answer is another call's"),
            Err(status) => return status,
        }
        calls.fetch_add(1, Ordering::Relaxed);
    }
    Status::out_of_range("no seeds are left")
}

/// Waits until every count has grown.
async fn all_called(counts: &[Arc<AtomicU64>]) {
    let load = || counts.iter().map(|count| count.load(Ordering::Relaxed));
    let before: Vec<u64> = load().collect();
    while !load().zip(&before).all(|(now, before)| now >= before + CALLS_A_ROUND) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

pub(super) async fn shutting_down_under_load_loses_no_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let (place, address) = harness.place().await?;
    let settings = harness.rules().settings;
    let builder = || settings.server(Server::builder());
    let server = || builder().add_service(ProbeService::new(Probe::new().0)).build();
    // Made beforehand: the endpoint is the present server's for as long as that serves.
    let servers: Vec<_> = (0..ROUND_COUNT).map(|_| server()).collect();
    let first = server();
    let shared = SharedPlace::new(place);
    let mut serving = Serving::start(&first, &shared);
    let channel = connect(harness.path(), &address, &harness.rules()).await?;
    let found = channel.info().map(|info| info.transport);
    check_eq("the transport", &found, &Some(harness.path().name()))?;
    let stub = ProbeStub::new(channel);
    let counts: Vec<_> = (0..TASK_COUNT).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let mut tasks = JoinSet::new();
    for (count, task) in counts.iter().zip(0..) {
        tasks.spawn(call_on(stub.clone(), task * 1_000_000, Arc::clone(count)));
    }
    for server in servers {
        tokio::select! {
            called = harness.within("the calls of every task", all_called(&counts)) => called?,
            Some(failed) = tasks.join_next() => {
                return check(false, "a call that was lost", failed?);
            }
        }
        let next = Serving::start(&server, &shared);
        harness.within("the end of a server", serving.stop()).await??;
        serving = next;
    }
    let failed = tasks.try_join_next();
    check(failed.is_none(), "a call that was lost", failed)?;
    tasks.shutdown().await;
    harness.within("the end of the last server", serving.stop()).await?
}

/// The drain time is over while a call is in flight.
pub(super) async fn what_outlasts_the_drain_time_is_cancelled(
    harness: &Harness,
) -> Result<(), Failure> {
    let drain = Duration::from_millis(50);
    let mut server = harness.serve_by(|builder| builder.drain_timeout(drain)).await?;
    let stub = server.stub().await?;
    let call = {
        let stub = stub.clone();
        tokio::spawn(async move { stub.park(ParkRequest { tag: 1, ..Default::default() }).await })
    };
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    server.shut_down();
    let ended = server.within("the end of the call", call).await??;
    let status = refused("a call that takes too long", ended)?;
    check_eq("its code", &status.code(), &Code::Unavailable)?;
    check(status.message().contains("server.drain_timeout"), "its message", &status)?;
    check(!NotExecuted::matches(&status), "a call that may have been", &status)?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Dropped(1))?;
    server.stopped().await
}

/// Streams in flight end in their own time too.
pub(super) async fn a_stream_in_progress_outlasts_the_shutdown(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    echo(&stub, 1, 100).await?;
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut replies = stub.chat(requests).await?.into_inner();
    for seed in 0..6 {
        let sent = payload(seed, 1000);
        let request = EchoRequest { payload: sent.clone(), ..Default::default() };
        check(sender.send(request).await.is_ok(), "the stream takes a message", seed)?;
        let reply = server.within("a reply", replies.message()).await??;
        check_payload("the reply", &reply.unwrap_or_default().payload, &sent)?;
        if seed == 2 {
            server.shut_down();
        }
    }
    drop(sender);
    let end = server.within("the end", replies.message()).await??;
    check(end.is_none(), "the end of the replies", end)?;
    server.stopped().await
}
