//! Peers that go silent behind a hop that goes on taking bytes: both ends notice within the bound,
//! whatever was going on. Nothing but pings can find that out: no socket ever fails.

mod hop;

use std::time::{Duration, Instant};

use farcall::{Channel, Code, Config, Keepalive, Server, Status};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{DownloadRequest, EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Event, Probe, Watch};
use hop::Hop;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

const KEEPALIVE: Keepalive =
    Keepalive { interval: Duration::from_millis(300), timeout: Duration::from_millis(600) };

/// What the documentation of [`Keepalive`] promises, and as much again for a busy machine.
const BOUND: Duration = Duration::from_millis(2 * (2 * 300 + 600));

/// The bound on every other wait.
const LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

struct Rig {
    server: Server,
    serving: JoinHandle<std::io::Result<()>>,
    watch: Watch,
    hop: Hop,
    channel: Channel,
    stub: ProbeStub,
}

impl Rig {
    async fn start() -> Self {
        let config = Config::default().with_keepalive(KEEPALIVE);
        let endpoint = farcall::bind_with("tcp://127.0.0.1:0", &config).await.expect("a port");
        let authority = endpoint.address().to_string().replace("tcp://", "");
        let (probe, watch) = Probe::new();
        let builder = Server::builder().add_service(ProbeService::new(probe));
        let server = endpoint.configure(builder).build();
        let serving = server.clone();
        let serving = tokio::spawn(async move { serving.serve(endpoint).await });
        let hop = Hop::start(&authority).await.expect("a hop");
        let address = format!("tcp://{}", hop.authority);
        let channel = farcall::connect_with(&address, &config).await.expect("a connection");
        let stub = ProbeStub::new(channel.clone());
        stub.echo(EchoRequest::default()).await.expect("the hop lets calls pass");
        Self { server, serving, watch, hop, channel, stub }
    }

    /// Swallows everything from now on, and waits until both ends have noticed.
    async fn swallow(&self, what: &str) {
        self.hop.swallow();
        let start = Instant::now();
        let client = async {
            until(|| self.channel.info().is_none()).await;
            start.elapsed()
        };
        let server = async {
            until(|| self.server.connections().is_empty()).await;
            start.elapsed()
        };
        let both = async { tokio::join!(client, server) };
        let (client, server) = tokio::time::timeout(BOUND, both).await.expect("both ends notice");
        println!("{what}: the client noticed after {client:?}, the server after {server:?}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.unwrap_or_else(|_| panic!("{what} did not happen within {LIMIT:?}"))
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
    let stub = rig.stub.clone();
    let call =
        tokio::spawn(async move { stub.park(ParkRequest { tag: 1, ..Default::default() }).await });
    assert_eq!(within("the handler", rig.watch.next()).await, Some(Event::Entered(1)));
    rig.swallow("a call in flight").await;
    let ended = within("the end of the call", call).await.expect("no panic");
    check_silent(&ended.expect_err("nobody could answer"));
    // The server does not work for somebody who is gone.
    assert_eq!(within("the handler", rig.watch.next()).await, Some(Event::Dropped(1)));
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
    let message = ProduceRequest { seed: 1, len: 1000 };
    let request =
        DownloadRequest { messages: vec![message], rounds: u32::MAX, ..Default::default() };
    let mut stream = rig.stub.download(request).await.expect("a stream").into_inner();
    for _ in 0..10 {
        let message = within("a message", stream.message()).await.expect("the stream goes on");
        assert!(message.is_some(), "the stream has an end");
    }
    let reading = tokio::spawn(async move {
        loop {
            if let Err(status) = stream.message().await {
                return status;
            }
        }
    });
    rig.swallow("a stream in progress").await;
    check_silent(&within("the end of the stream", reading).await.expect("no panic"));
}

/// A link that lets little through at a time is alive: nobody is cut off, although a frame takes
/// many times as long as the peer has to answer.
#[tokio::test]
async fn a_slow_link_is_not_cut() {
    let rig = Rig::start().await;
    rig.hop.slow_down();
    let start = Instant::now();
    let payload = farcall_suite::payload(1, 1 << 20);
    let request = EchoRequest { payload: payload.clone(), ..Default::default() };
    let reply = within("the answer", rig.stub.echo(request)).await.expect("nobody is cut off");
    assert_eq!(reply.into_inner().payload, payload);
    let elapsed = start.elapsed();
    println!("a slow link: the call took {elapsed:?}, {KEEPALIVE:?}");
    assert_eq!(rig.server.connections().len(), 1);
}
