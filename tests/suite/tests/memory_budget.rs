//! The memory that clients can make a server keep over TCP when they do not read, or do not go on,
//! next to an honest client.

use std::net::SocketAddr;
use std::time::Duration;

use farcall::{Channel, Code, Limits, NotExecuted, ServeError, Server, Status, Streaming};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE};
use farcall_suite::proto::{EchoReply, EchoRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_with, record};
use farcall_testkit::counters::resident_kib;
use prost::Message;
use rpc_core::calls::window::{Counts, SendWindow, Window};
use rpc_core::wire::{FrameHeader, FrameKind};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The greedy clients' address. The honest one connects from 127.0.0.1, as clients do.
const GREEDY: &str = "127.0.0.2:0";

const MAX_MEMORY: u64 = 64 << 20;
const GREEDY_COUNT: usize = 25;
const CALLS: u64 = 5;
const LEN: usize = 4_000_000;

/// The streams of each greedy client.
const STREAMS: u64 = 60;

/// The messages of a stream. The memory of a frame of that length is not rounded up.
const MESSAGE_LEN: usize = 3000;

/// Further growth of the process meanwhile: two other tests have a budget each, and there are
/// buffers and tasks.
const MARGIN: u64 = 2 * MAX_MEMORY + (32 << 20);

const WHOLE: u8 = 1;
const FIRST: u8 = 2;

struct Rig {
    address: String,
    server: Server,
    _serving: AbortOnDropHandle<Result<(), ServeError>>,
}

impl Rig {
    async fn start() -> Result<Self, Failure> {
        let builder = Server::builder().max_memory(MAX_MEMORY);
        let builder = builder.add_service(ProbeService::new(Probe::new().0));
        let server = builder.build();
        let listener = server.bind("tcp://127.0.0.1:0").await?;
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        Ok(Self { address, server, _serving: AbortOnDropHandle::new(serving) })
    }

    async fn honest(&self) -> Result<ProbeStub, Failure> {
        Ok(ProbeStub::new(Channel::builder(&self.address)?.connect().await?))
    }

    /// Connections that have sent `bytes` and read nothing, when the server has read all of it.
    async fn greedy(&self, bytes: &[u8]) -> Result<Vec<RawPeer>, Failure> {
        self.greedy_with(&Limits::default(), |_| bytes.to_vec()).await.map(|(peers, _)| peers)
    }

    /// The same of clients with `limits` that send what `bytes` makes of the server's, and how long
    /// that is.
    async fn greedy_with(
        &self,
        limits: &Limits,
        bytes: impl Fn(&Limits) -> Vec<u8>,
    ) -> Result<(Vec<RawPeer>, usize), Failure> {
        let (mut peers, mut len) = (Vec::new(), 0);
        for _ in 0..GREEDY_COUNT {
            let socket = TcpSocket::new_v4()?;
            socket.bind(GREEDY.parse::<SocketAddr>()?)?;
            let server = self.address.trim_start_matches("tcp://").parse()?;
            let mut peer = RawPeer::new(socket.connect(server).await?);
            peer.send(&hello_with(limits, Vec::new())).await?;
            let limits = within("the server's Hello", peer.read_hello()).await?.limits();
            let bytes = bytes(&limits);
            len = bytes.len();
            peer.send(&bytes).await?;
            peers.push(peer);
        }
        let has_read = || {
            let infos = self.server.connections();
            let received = infos.iter().map(|info| info.stats.received_bytes);
            received.filter(|read| *read >= len as u64).count() >= GREEDY_COUNT
        };
        let all_read = async {
            while !has_read() {
                tokio::task::yield_now().await;
            }
        };
        within("what the greedy clients sent", all_read).await;
        Ok((peers, len))
    }
}

async fn within<T>(what: &str, waited: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

fn method(name: &str) -> u16 {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    u16::try_from(index.expect("the service has it")).expect("it has few")
}

/// A call that echoes a stream, and as many messages of it as the server has said that it takes.
fn filled_stream(call: u64, limits: &Limits) -> Vec<u8> {
    let mut request = FrameHeader::bare(FrameKind::Request, call);
    (request.is_streaming, request.selector) = (true, method("/Chat"));
    let payload = vec![7; MESSAGE_LEN].into();
    let message = EchoRequest { payload, ..EchoRequest::default() }.encode_to_vec();
    let len = u32::try_from(message.len()).expect("it is short").to_le_bytes();
    let body = [&len[..], &message].concat();
    let mut records = record(WHOLE, 0, &request.to_bytes());
    for place in 0..u64::from(limits.max_stream_bytes).div_ceil(message.len() as u64) {
        let mut header = FrameHeader::bare(FrameKind::Messages, call);
        (header.argument, header.message_len) = (place, body.len() as u64);
        records.extend(record(WHOLE, 0, &[&header.to_bytes()[..], &body].concat()));
    }
    records
}

/// A stream of echoes that goes on for as long as it is wanted.
struct Chat {
    requests: mpsc::Sender<EchoRequest>,
    replies: Streaming<EchoReply>,
}

impl Chat {
    async fn start(stub: &ProbeStub) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(1);
        let replies = within("a stream", stub.chat(ReceiverStream::new(receiver))).await?;
        Ok(Self { requests, replies: replies.into_inner() })
    }

    async fn check(&mut self) -> Result<(), Failure> {
        let payload = farcall_suite::payload(2, 10_000);
        let request = EchoRequest { payload: payload.clone(), ..EchoRequest::default() };
        within("the stream's window", self.requests.send(request)).await?;
        let reply = within("an echo", self.replies.message()).await?.expect("it goes on");
        assert_eq!(reply.payload, payload);
        Ok(())
    }
}

async fn check_honest(stub: &ProbeStub) -> Result<(), Failure> {
    let payload = farcall_suite::payload(1, 100_000);
    let request = EchoRequest { payload: payload.clone(), ..EchoRequest::default() };
    let reply = within("an honest call", stub.echo(request)).await?.into_inner();
    assert_eq!(reply.payload, payload);
    Ok(())
}

/// Waits until nothing counts any more.
async fn check_returned(server: &Server) {
    let returned = async {
        while server.memory_held() > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the memory of connections that have ended", returned).await;
}

#[tokio::test]
async fn unread_answers_are_bounded_over_all_connections() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let honest = rig.honest().await?;
    check_honest(&honest).await?;
    let message = ProduceRequest { seed: 1, len: LEN as u64 }.encode_to_vec();
    let request =
        |call| record(WHOLE, 0, &frame(FrameKind::Request, call, method("/Produce"), &message));
    let requests: Vec<u8> = (0..CALLS).flat_map(request).collect();
    let before_kib = resident_kib()?;
    let greedy = rig.greedy(&requests).await?;
    let (held, grown_kib) = (rig.server.memory_held(), resident_kib()?.saturating_sub(before_kib));
    println!(
        "{GREEDY_COUNT} connections sent {} bytes each: {} MiB count, and the process has grown by \
         {} MiB",
        requests.len(),
        held >> 20,
        grown_kib >> 10,
    );
    assert!((MAX_MEMORY / 4..=MAX_MEMORY / 2).contains(&held), "{held}");
    check_honest(&honest).await?;
    drop(greedy);
    check_returned(&rig.server).await;
    check_honest(&honest).await
}

#[tokio::test]
async fn announced_requests_are_bounded_over_all_connections() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let honest = rig.honest().await?;
    let first = |call: u32| {
        let request = frame(FrameKind::Request, call.into(), method("/Echo"), &vec![0; LEN]);
        let len = (request.len() as u64).to_le_bytes();
        record(FIRST, call, &[&len[..], &request[..64]].concat())
    };
    let firsts: Vec<u8> = (1..=8).flat_map(first).collect();
    let greedy = rig.greedy(&firsts).await?;
    let held = rig.server.memory_held();
    println!("{GREEDY_COUNT} connections sent {} bytes each: {held} bytes count", firsts.len());
    assert!((MAX_MEMORY / 4..=MAX_MEMORY / 2).contains(&held), "{held}");
    // The greedy clients' address has its share, and another one has room.
    let payload = vec![7; LEN].into();
    let echo = EchoRequest { payload, ..EchoRequest::default() };
    within("a large honest call", honest.echo(echo)).await?;
    check_honest(&honest).await?;
    drop(greedy);
    check_returned(&rig.server).await;
    Ok(())
}

/// A client fills the windows of its streams, and its handlers read nothing, since the client reads
/// no echo.
#[tokio::test]
async fn unread_streams_are_bounded_over_all_connections() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let honest = rig.honest().await?;
    let mut established = Chat::start(&honest).await?;
    established.check().await?;
    let before_kib = resident_kib()?;
    let deaf = Limits::default().with_max_stream_messages(1).with_max_stream_bytes(1);
    let streams = |limits: &Limits| {
        (0..STREAMS).flat_map(|call| filled_stream(call, limits)).collect::<Vec<_>>()
    };
    let (greedy, len) = rig.greedy_with(&deaf, streams).await?;
    let (held, grown_kib) = (rig.server.memory_held(), resident_kib()?.saturating_sub(before_kib));
    println!(
        "{GREEDY_COUNT} connections sent {len} bytes in {STREAMS} streams each: {} MiB count, and \
         the process has grown by {} MiB",
        held >> 20,
        grown_kib >> 10,
    );
    assert!((MAX_MEMORY / 4..=MAX_MEMORY / 2).contains(&held), "{held}");
    assert!(grown_kib << 10 <= MAX_MEMORY + MARGIN, "{grown_kib} KiB");
    established.check().await?;
    check_honest(&honest).await?;
    // New streams are refused where there is no memory for their windows.
    let mut more = Vec::new();
    let refused = loop {
        match Chat::start(&honest).await {
            Ok(chat) => more.push(chat),
            Err(status) => break status,
        }
        assert!(more.len() < 1000, "no stream is refused");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("(server.max_memory)"), "{refused}");
    assert!(NotExecuted::matches(&refused), "{refused}");
    println!("beside them an honest client has {} streams more", more.len());
    established.check().await?;
    drop((greedy, more, established));
    check_returned(&rig.server).await;
    check_honest(&honest).await
}

/// A client whose handler reads well until the window is wide, and that then fills it and takes no
/// echo. Says how many bytes it was allowed at last.
async fn fill_widened(rig: &Rig) -> Result<(RawPeer, u32), Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(GREEDY.parse::<SocketAddr>()?)?;
    let server = rig.address.trim_start_matches("tcp://").parse()?;
    let mut peer = RawPeer::new(socket.connect(server).await?);
    // The echoes have room, so that the handler reads on.
    let limits = Limits::default().with_max_stream_messages(1 << 16).with_max_stream_bytes(1 << 30);
    peer.send(&hello_with(&limits, Vec::new())).await?;
    let announced = within("the server's Hello", peer.read_hello()).await?.limits();
    let window =
        Window { messages: announced.max_stream_messages, bytes: announced.max_stream_bytes };
    let mut stream = Filling { window: SendWindow::new(window), place: 0 };
    let mut request = FrameHeader::bare(FrameKind::Request, CALL);
    (request.is_streaming, request.selector) = (true, method("/Chat"));
    peer.send(&record(WHOLE, 0, &request.to_bytes())).await?;
    let mut left = window.bytes;
    while left < WIDE && stream.window.sent().bytes < WIDENING_MAX {
        peer.send(&stream.fill()).await?;
        let granted = loop {
            let frame = within("a grant", peer.read_frame()).await?;
            if frame.header.kind == FrameKind::Window {
                break Counts::from_wire(frame.header.argument);
            }
        };
        stream.window.handle_grant(granted);
        left = granted.bytes.wrapping_sub(stream.window.sent().bytes);
    }
    // A server that is short of memory may have closed the connection.
    let _ = peer.send(&stream.fill()).await;
    Ok((peer, left))
}

/// The call of [`fill_widened`].
const CALL: u64 = 1;

/// More than a window has left of 256 KiB. One of 1 MiB, which was widened three times, has half
/// of that left when a grant comes, since the client has sent all that it could before.
const WIDE: u32 = 400_000;

/// Maximum bytes that a client sends until it has a window of that width.
const WIDENING_MAX: u32 = 8 << 20;

/// A stream of requests, as far as its client has sent it.
struct Filling {
    window: SendWindow,
    place: u64,
}

impl Filling {
    /// Returns as many messages as the window has room for.
    fn fill(&mut self) -> Vec<u8> {
        let payload = vec![7; MESSAGE_LEN].into();
        let message = EchoRequest { payload, ..EchoRequest::default() }.encode_to_vec();
        let len = u32::try_from(message.len()).expect("it is short").to_le_bytes();
        let body = [&len[..], &message].concat();
        let mut records = Vec::new();
        while self.window.is_open() {
            let mut header = FrameHeader::bare(FrameKind::Messages, CALL);
            (header.argument, header.message_len) = (self.place, body.len() as u64);
            records.extend(record(WHOLE, 0, &[&header.to_bytes()[..], &body].concat()));
            self.window.send(message.len());
            self.place += 1;
        }
        records
    }
}

/// Windows that were wide when their handlers read count as what may wait in them.
#[tokio::test]
async fn wide_windows_that_are_filled_at_once_are_bounded() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let honest = rig.honest().await?;
    let mut established = Chat::start(&honest).await?;
    established.check().await?;
    let before_kib = resident_kib()?;
    let (mut greedy, mut widest) = (Vec::new(), 0);
    for _ in 0..2 * GREEDY_COUNT {
        // Later ones may be refused, or closed to make room.
        if let Ok((peer, left)) = fill_widened(&rig).await {
            greedy.push(peer);
            widest = widest.max(left);
        }
    }
    let (held, grown_kib) = (rig.server.memory_held(), resident_kib()?.saturating_sub(before_kib));
    println!(
        "{} clients filled windows of at most {widest} bytes: {} MiB count, and the process has \
         grown by {} MiB",
        greedy.len(),
        held >> 20,
        grown_kib >> 10,
    );
    assert!(widest >= WIDE, "{widest}");
    assert!(held <= MAX_MEMORY / 2, "{held}");
    assert!(grown_kib << 10 <= MAX_MEMORY + MARGIN, "{grown_kib} KiB");
    established.check().await?;
    check_honest(&honest).await?;
    drop((greedy, established));
    check_returned(&rig.server).await;
    check_honest(&honest).await
}
