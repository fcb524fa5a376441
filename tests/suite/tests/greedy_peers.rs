//! Peers that take all that one of them can get, over TCP, and honest clients beside them.

mod log;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use farcall::{Channel, Limits, ServeError, Server, ServerBuilder, Status};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE};
use farcall_suite::proto::{EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_with, record};
use farcall_suite::{Probe, Watch, WatchEvent};
use log::Log;
use prost::Message;
use rpc_core::wire::FrameKind;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The greedy peer's address. The honest one connects from 127.0.0.1, as clients do.
const GREEDY: &str = "127.0.0.2:0";

/// Much less than any wait, and more than a hundred handshakes take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

const WHOLE: u8 = 1;

struct Rig {
    limits: Limits,
    server: Server,
    serving: JoinHandle<Result<(), ServeError>>,
    watch: Watch,
    address: String,
}

impl Rig {
    async fn start(limits: Limits, rules: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let (probe, watch) = Probe::new();
        let builder = rules(Server::builder().limits(limits).handshake_timeout(HANDSHAKE_TIMEOUT))
            .add_service(ProbeService::new(probe));
        let server = builder.build();
        let listener = server.bind("tcp://127.0.0.1:0").await.expect("a port");
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        Self { limits, server, serving, watch, address }
    }

    async fn honest(&self) -> Result<ProbeStub, Failure> {
        let builder = Channel::builder(&self.address)?.limits(self.limits);
        let connecting = builder.handshake_timeout(HANDSHAKE_TIMEOUT).connect();
        Ok(ProbeStub::new(within("an honest connection", connecting).await?))
    }

    /// A connection of the greedy peer that has said nothing yet.
    async fn greedy(&self) -> Result<RawPeer, Failure> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(GREEDY.parse::<SocketAddr>()?)?;
        let server = self.address.trim_start_matches("tcp://").parse()?;
        Ok(RawPeer::new(socket.connect(server).await?))
    }

    /// A connection of the greedy peer after its handshake, in which it said these limits.
    async fn greeted(&self, limits: &Limits) -> Result<RawPeer, Failure> {
        let mut peer = self.greedy().await?;
        peer.send(&hello_with(limits, Vec::new())).await?;
        within("the server's Hello", peer.read_hello()).await?;
        Ok(peer)
    }

    /// Waits until so many handlers have come to `event`.
    async fn events(&mut self, count: usize, is_it: fn(&WatchEvent) -> bool) {
        let mut seen = 0;
        while seen < count {
            let event = within("an event", self.watch.next()).await.expect("the server lives");
            seen += usize::from(is_it(&event));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn within<T>(what: &str, waited: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// Requests of these calls, which wait for the test and answer `len` bytes, in one piece.
fn parks(calls: Range<u64>, len: u64) -> Vec<u8> {
    let path = |method: &farcall::MethodDescriptor| method.path.ends_with("/Park");
    let method = SERVICE.methods.iter().position(path).expect("the service has it");
    let method = u16::try_from(method).expect("it has few");
    let park = |call: u64| {
        let answer = Some(ProduceRequest { seed: call, len });
        let message = ParkRequest { tag: call, answer, ..Default::default() }.encode_to_vec();
        record(WHOLE, 0, &frame(FrameKind::Request, call, method, &message))
    };
    calls.flat_map(park).collect()
}

async fn echo(stub: &ProbeStub) -> Result<(), Status> {
    let request = EchoRequest { payload: "honest".into(), ..Default::default() };
    within("an honest call", stub.echo(request)).await.map(drop)
}

/// The answers have no memory as long as nothing is read: the peer says that it takes one large
/// frame at a time.
#[tokio::test]
async fn a_peer_that_reads_no_answers_holds_no_permits() -> Result<(), Failure> {
    const MAX_CALLS: u32 = 8;
    const CALLS: usize = MAX_CALLS as usize;
    let mut rig = Rig::start(Limits::default(), |builder| builder.max_calls(MAX_CALLS)).await;
    let honest = rig.honest().await?;
    let limits = Limits::default().with_max_receiving_bytes(1);
    let mut greedy = rig.greeted(&limits).await?;
    // This answer is on its way for ever, and those of the others wait behind it.
    greedy.send(&parks(0..1, 4_000_000)).await?;
    rig.watch.open(1);
    rig.events(1, |event| matches!(event, WatchEvent::Answered(_))).await;
    greedy.send(&parks(1..1 + CALLS as u64, 4_000_000)).await?;
    rig.events(CALLS, |event| matches!(event, WatchEvent::Entered(_))).await;
    let refused = echo(&honest).await.expect_err("all permits are taken");
    assert!(refused.message().contains("server.max_calls"), "{refused}");
    rig.watch.open(CALLS);
    rig.events(CALLS, |event| matches!(event, WatchEvent::Answered(_))).await;
    // The last handler returns a moment after its event.
    let mut answered = echo(&honest).await;
    for _ in 0..100 {
        if answered.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        answered = echo(&honest).await;
    }
    let in_flight: usize = rig.server.connections().iter().map(|info| info.calls_in_flight).sum();
    println!("{in_flight} answers wait; an honest call: {answered:?}");
    assert_eq!(in_flight, CALLS, "the answers that wait");
    Ok(answered?)
}

/// The handlers run and run, on as many connections as the peer likes.
#[tokio::test]
async fn one_address_gets_half_of_the_running_calls() -> Result<(), Failure> {
    const MAX_CALLS: u32 = 64;
    const CALLS: usize = MAX_CALLS as usize;
    let (log, _capturing) = Log::capture();
    let limits = Limits::default().with_max_calls(8);
    let mut rig = Rig::start(limits, |builder| builder.max_calls(MAX_CALLS)).await;
    let honest = rig.honest().await?;
    let mut greedy = Vec::new();
    for _ in 0..2 * CALLS / 8 {
        let mut peer = rig.greeted(&limits).await?;
        peer.send(&parks(0..8, 10)).await?;
        greedy.push(peer);
    }
    rig.events(CALLS / 2, |event| matches!(event, WatchEvent::Entered(_))).await;
    // What was sent too much is refused: the server has looked at all of it.
    for peer in &mut greedy[CALLS / 8 / 2 + 1..] {
        within("a refusal", peer.read_frame()).await?;
    }
    let mut entered_count = CALLS / 2;
    while let Some(WatchEvent::Entered(_)) = rig.watch.try_next() {
        entered_count += 1;
    }
    let answered = echo(&honest).await;
    println!("the greedy peer runs {entered_count} of {CALLS} calls; an honest one: {answered:?}");
    answered?;
    assert_eq!(entered_count, CALLS / 2);
    let lines = log.take_lines();
    let about = |line: &&String| line.contains("the limit on running calls is reached");
    let full: Vec<_> = lines.iter().filter(about).collect();
    assert_eq!(full.len(), 1, "it is said once: {lines:?}");
    for part in ["most_of=\"127.0.0.2\"", "most=32", "server.max_calls", "max_calls_per_peer"] {
        assert!(full[0].contains(part), "{part} in {full:?}");
    }
    Ok(())
}

/// It opens connections, and says nothing.
#[tokio::test]
async fn one_address_leaves_connections_to_others() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let rig = Rig::start(Limits::default(), |builder| builder.max_connections(80)).await;
    let mut greedy = Vec::new();
    for _ in 0..100 {
        greedy.push(rig.greedy().await?);
    }
    let honest = rig.honest().await?;
    echo(&honest).await?;
    // One too many was closed, and each of the others has its place.
    within("the end of the last", greedy[99].closed()).await;
    let lines = log.lines();
    let about = |line: &&String| line.contains("the limit on connections is reached");
    assert_eq!(lines.iter().filter(about).count(), 1, "it is said once: {lines:?}");
    Ok(())
}

/// A proxy's address is everybody's.
#[tokio::test]
async fn the_share_of_an_address_can_be_set() -> Result<(), Failure> {
    const MAX_CALLS: u32 = 64;
    const CALLS: usize = MAX_CALLS as usize;
    let limits = Limits::default().with_max_calls(8);
    for (per_peer, expected_count) in [(MAX_CALLS, CALLS), (3, 3)] {
        let rules =
            |builder: ServerBuilder| builder.max_calls(MAX_CALLS).max_calls_per_peer(per_peer);
        let mut rig = Rig::start(limits, rules).await;
        let mut proxies = Vec::new();
        for _ in 0..CALLS / 8 {
            let mut peer = rig.greeted(&limits).await?;
            peer.send(&parks(0..8, 10)).await?;
            proxies.push(peer);
        }
        rig.events(expected_count, |event| matches!(event, WatchEvent::Entered(_))).await;
        let refused = match expected_count {
            CALLS => None,
            _ => Some(within("a refusal", proxies[CALLS / 8 - 1].read_frame()).await?),
        };
        if let Some(refused) = refused {
            let text = String::from_utf8_lossy(&refused.body).into_owned();
            assert!(text.contains("server.max_calls_per_peer"), "{text}");
            assert!(refused.header.is_not_executed);
        }
        assert_eq!(rig.watch.try_next(), None);
    }
    Ok(())
}
