//! Peers that go silent behind a hop that goes on taking bytes: both ends notice within the bound,
//! whatever was going on. Nothing but pings can find that out: no socket ever fails.

mod hop;
mod noticing;

use std::time::{Duration, Instant};

use farcall::{Channel, Code, Keepalive, ServeError, Server, Status};
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Probe, Watch};
use hop::Hop;
use noticing::{
    both_notice, call_in_flight, ended, handler_is_dropped, stream_in_progress, within,
};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

const KEEPALIVE: Keepalive = Keepalive::new(Duration::from_millis(300), Duration::from_millis(600));

/// The time that the documentation of [`Keepalive`] promises, and as much again for a busy machine.
const BOUND: Duration = Duration::from_millis(2 * (2 * 300 + 600));

struct Rig {
    server: Server,
    serving: JoinHandle<Result<(), ServeError>>,
    watch: Watch,
    hop: Hop,
    channel: Channel,
    stub: ProbeStub,
}

impl Rig {
    async fn start() -> Self {
        let (probe, watch) = Probe::new();
        let builder = Server::builder().keepalive(KEEPALIVE).add_service(ProbeService::new(probe));
        let server = builder.build();
        let listener = server.bind("tcp://127.0.0.1:0").await.expect("a port");
        let authority = listener.local_address().to_string().replace("tcp://", "");
        let serving = tokio::spawn(listener.serve());
        let hop = Hop::start(&authority).await.expect("a hop");
        let address = format!("tcp://{}", hop.authority);
        let channel = Channel::builder(&address)
            .expect("the address is one")
            .keepalive(KEEPALIVE)
            .connect()
            .await
            .expect("a connection");
        let stub = ProbeStub::new(channel.clone());
        stub.echo(EchoRequest::default()).await.expect("the hop lets calls pass");
        Self { server, serving, watch, hop, channel, stub }
    }

    /// Swallows everything from now on, and waits until both ends have noticed.
    async fn swallow(&self, what: &str) {
        self.hop.swallow();
        both_notice(what, &self.channel, &self.server, BOUND).await;
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn check_silent(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("keepalive.timeout"), "{status}");
}

#[tokio::test]
async fn on_an_idle_connection() {
    Rig::start().await.swallow("idle").await;
}

#[tokio::test]
async fn with_a_call_in_flight() {
    let mut rig = Rig::start().await;
    let call = call_in_flight(&rig.stub, &mut rig.watch).await;
    rig.swallow("a call in flight").await;
    check_silent(&ended(call).await);
    handler_is_dropped(&mut rig.watch).await;
}

/// The client never stops calling: what it sends is no sign of life.
#[tokio::test]
async fn with_calls_that_go_on() {
    let rig = Rig::start().await;
    let stub = rig.stub.clone();
    let calls = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            // Given up again and again, so that there is always something to send.
            let call = stub.echo(EchoRequest::default());
            let _ = tokio::time::timeout(Duration::from_millis(5), call).await;
        }
    }));
    rig.swallow("calls that go on").await;
    drop(calls);
}

#[tokio::test]
async fn with_a_stream_in_progress() {
    let rig = Rig::start().await;
    let reading = stream_in_progress(&rig.stub).await;
    rig.swallow("a stream in progress").await;
    check_silent(&ended(reading).await);
}

/// A link that lets little through at a time is alive: no side cuts it off, although a frame takes
/// many times as long as the peer has to answer.
#[tokio::test]
async fn a_slow_link_is_not_cut() {
    let rig = Rig::start().await;
    rig.hop.slow_down();
    let start = Instant::now();
    let payload = farcall_suite::payload(1, 1 << 20);
    let request = EchoRequest { payload: payload.clone(), ..Default::default() };
    let reply =
        within("the answer", rig.stub.echo(request)).await.expect("the link is not cut off");
    assert_eq!(reply.into_inner().payload, payload);
    let elapsed = start.elapsed();
    println!("a slow link: the call took {elapsed:?}, {KEEPALIVE:?}");
    assert_eq!(rig.server.connections().len(), 1);
}
