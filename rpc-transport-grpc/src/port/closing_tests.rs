//! Connections at the port end within bounds and without resets. Runs on paused time, over
//! in-memory streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, pending, ready};
use rpc_core::connect::Bootstrap;
use rpc_core::server::{
    HandlerFuture, Listen, Offers, OtherProtocol, ServerCall, ServerParts, ServerSettings,
};
use rpc_core::{
    CallKind, Idempotency, MethodDescriptor, Request, Response, Service, ServiceDescriptor,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{GrpcPort, Http1Port};
use crate::test_stream::Stream;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.T",
    methods: &[MethodDescriptor::new("/t.T/Echo", CallKind::Unary, Idempotency::Unknown)],
};

struct Echo;

impl Service for Echo {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async |request: Request<u64>| Ok(Response::new(request.into_inner())))
    }
}

/// A listener that accepts one stream and then waits forever.
#[derive(Debug)]
struct OneStream(Option<DuplexStream>);

impl Listen for OneStream {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match self.0.take() {
            Some(stream) => ready(Ok(Some(Box::new(Stream(stream)) as Box<dyn Bootstrap>))).boxed(),
            None => pending().boxed(),
        }
    }

    fn offers(&self) -> Offers {
        let mut offers = Offers::default();
        let protocols: [Arc<dyn OtherProtocol>; 2] =
            [Arc::new(GrpcPort::default()), Arc::new(Http1Port::default())];
        offers.protocols = protocols.into();
        offers
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame from the server.
#[derive(Debug)]
struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

/// A raw HTTP/2 client.
#[derive(Debug)]
struct RawClient<S>(S);

impl<S: AsyncRead + AsyncWrite + Unpin> RawClient<S> {
    /// Sends the preface and SETTINGS, and nothing else.
    async fn begin(mut stream: S) -> Self {
        stream.write_all(PREFACE).await.expect("the server listens");
        let mut client = Self(stream);
        client.send(SETTINGS, 0, 0, &[]).await.expect("the server listens");
        client
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let [_, len @ ..] = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        let head = [&len[..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).await
    }

    /// Calls `Echo` on a stream, with an authority. Keeps the requests open unless `ends` is set.
    async fn call(&mut self, stream: u32, authority: &str, ends: bool) {
        self.call_method("Echo", stream, authority, ends).await;
    }

    /// Calls `method` the same way.
    async fn call_method(&mut self, method: &str, stream: u32, authority: &str, ends: bool) {
        let path = format!("/t.T/{method}");
        let mut block = vec![0x83, 0x86];
        let fields: [(&[u8], &str); 4] = [
            // Indexes in HPACK's static table, as gRPC's core writes them.
            (&[0x44], &path),
            (&[0x41], authority),
            (&[0x5f], "application/grpc"),
            (&[0x40, 2, b't', b'e'], "trailers"),
        ];
        for (name, value) in fields {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).expect("it is short"));
            block.extend_from_slice(value.as_bytes());
        }
        self.send(HEADERS, END_HEADERS, stream, &block).await.expect("it is open");
        let flags = if ends { END_STREAM } else { 0 };
        self.send(DATA, flags, stream, &[0; 5]).await.expect("it is open");
    }

    /// Reads the next frame. Returns `None` if the server has ended the stream cleanly.
    async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
            Err(error) => panic!("the server resets the connection: {error}"),
        }
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.expect("the frame is whole");
        Some(Frame { kind, payload })
    }

    /// Reads up to the next frame of this kind.
    async fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.expect("the server goes on");
            if frame.kind == kind {
                return frame;
            }
        }
    }
}

/// A server of one stream that only a shutdown ends.
struct Rig {
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Rig {
    fn start() -> (Self, DuplexStream) {
        let (ours, theirs) = duplex(1 << 20);
        let (shutdown, shut_down) = oneshot::channel();
        let mut settings = ServerSettings::default();
        settings.keepalive = rpc_core::Keepalive::off();
        settings.progress_timeout = None;
        (settings.drain_timeout, settings.handshake_timeout) = (HOUR, HOUR);
        let server = ServerParts::default().add_service(Echo).build(settings);
        let serving = tokio::spawn(async move {
            let shutdown = async { drop(shut_down.await) };
            let served = server.serve_until(OneStream(Some(theirs)), shutdown).await;
            served.expect("it serves");
        });
        (Self { shutdown, serving }, ours)
    }

    /// Shuts the server down and returns the duration of the drain.
    async fn drain_time(self) -> Duration {
        let began = Instant::now();
        self.shutdown.send(()).expect("it serves");
        ended(self.serving).await;
        began.elapsed()
    }
}

/// Waits for the server to end.
async fn ended(serving: JoinHandle<()>) {
    tokio::time::timeout(HOUR / 2, serving).await.expect("it ends in time").unwrap();
}

/// Lets the server read the sent bytes.
async fn settle() {
    sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn silent_peers_do_not_hold_a_drain_without_calls() {
    for (what, sent) in [
        ("preface and SETTINGS", [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()),
        ("preface", PREFACE.to_vec()),
        ("half a preface", PREFACE[..10].to_vec()),
        ("half a head of HTTP/1", b"GET /healthz HTTP/1.1\r\n".to_vec()),
        ("nothing", Vec::new()),
    ] {
        let (rig, mut stream) = Rig::start();
        stream.write_all(&sent).await.unwrap();
        settle().await;
        let time = rig.drain_time().await;
        assert!(time <= SECOND + SECOND / 10, "{what}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answered_peer_with_open_requests_does_not_hold_a_drain() {
    let (rig, stream) = Rig::start();
    let mut client = RawClient::begin(stream).await;
    // The server answers at once: it has no such method.
    client.call_method("Nothing", 1, "localhost", false).await;
    client.until(HEADERS).await;
    settle().await;
    let time = rig.drain_time().await;
    assert!(time <= SECOND + SECOND / 10, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_hold_a_drain_of_a_silent_peer() {
    let (rig, stream) = Rig::start();
    let mut client = RawClient::begin(stream).await;
    // The message does not arrive, and the client stays silent for a while.
    client.call(1, "localhost", false).await;
    settle().await;
    let began = Instant::now();
    rig.shutdown.send(()).unwrap();
    sleep(60 * SECOND).await;
    assert!(!rig.serving.is_finished());
    client.send(DATA, END_STREAM, 1, &[]).await.unwrap();
    client.until(HEADERS).await;
    ended(rig.serving).await;
    assert!(began.elapsed() <= 62 * SECOND, "{:?}", began.elapsed());
}

/// Closing a socket with unread bytes would reset data that the client has not read yet.
#[tokio::test(start_paused = true)]
async fn client_that_still_sends_is_read_until_it_closes() {
    let (rig, stream) = Rig::start();
    let mut client = RawClient::begin(stream).await;
    settle().await;
    rig.shutdown.send(()).unwrap();
    client.until(GO_AWAY).await;
    let ping = client.until(PING).await;
    client.send(PING, ACK, 0, &ping.payload).await.unwrap();
    let last = client.until(GO_AWAY).await;
    assert_eq!(last.payload[4..8], [0; 4], "NO_ERROR");
    assert!(client.frame().await.is_none(), "the server ends its direction");
    // The server still reads the bytes in flight.
    for number in 0..3_u8 {
        settle().await;
        client.send(PING, 0, 0, &[number; 8]).await.expect("the server still reads");
    }
    assert!(!rig.serving.is_finished());
    let began = Instant::now();
    drop(client);
    ended(rig.serving).await;
    assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn client_that_stays_is_closed_after_a_second() {
    let (rig, stream) = Rig::start();
    let mut client = RawClient::begin(stream).await;
    settle().await;
    let began = Instant::now();
    rig.shutdown.send(()).unwrap();
    let ping = client.until(PING).await;
    client.send(PING, ACK, 0, &ping.payload).await.unwrap();
    ended(rig.serving).await;
    assert!(began.elapsed() <= SECOND + SECOND / 10, "{:?}", began.elapsed());
}

/// The client learns the reason of the end although it keeps sending.
#[tokio::test(start_paused = true)]
async fn flood_is_ended_with_its_reason() {
    let (_rig, stream) = Rig::start();
    let mut client = RawClient::begin(stream).await;
    // Empty DATA frames on a stream that stays open, more than h2 allows.
    client.call(1, "localhost", false).await;
    for _ in 0..300 {
        client.send(DATA, 0, 1, &[]).await.expect("the server still reads");
    }
    let goodbye = client.until(GO_AWAY).await;
    assert_eq!(goodbye.payload[4..8], u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes());
    client.send(PING, 0, 0, &[7; 8]).await.expect("the server still reads");
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).await.unwrap();
}
