//! Peers that write what would forge lines, steer a terminal or fill a disk into every field that
//! they have, and the log of their victims, all of it down to TRACE.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use farcall::{Code, Limits, Server, Status};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE};
use farcall_suite::proto::{EchoRequest, ParkRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_bytes, record};
use parking_lot::Mutex;
use prost::Message;
use rpc_core::Channel;
use rpc_core::client::{ClientConfig, Connect};
use rpc_core::layer::TraceLayer;
use rpc_core::wire::hello::{self, Declined, Hello, Offer};
use rpc_core::wire::outcome::Outcome;
use rpc_core::wire::{FrameHeader, FrameKind};
use rpc_transport_tcp::{TcpConnector, TcpListener};
use tonic::metadata::MetadataMap;
use tracing::level_filters::LevelFilter;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

const WHOLE: u8 = 1;

/// Beginning of a line that a peer has forged.
const FORGED: &str = "FORGED";

/// The longest line: one or two fields of a peer of 512 bytes each, and some words of ours.
const LINE_LEN_MAX: usize = 2 << 10;

/// The log of all threads.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a peer's text. `mark` shows where it was found.
fn poison(mark: &str) -> String {
    format!("{mark}\n{FORGED} {mark}\r\u{1b}[2J\u{1b}[31m\u{7}\u{9b}1m\u{202e}\u{2028}{mark}")
}

/// The same, too long for any line.
fn long(mark: &str) -> String {
    poison(mark) + &"x".repeat(20_000)
}

fn method(name: &str) -> u16 {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    u16::try_from(index.expect("the service has it")).expect("it has few")
}

fn offer(name: String) -> Offer {
    Offer { name, blob: poison("blob").into() }
}

/// A frame with a block.
fn with_block(mut header: FrameHeader, block: &[u8]) -> Vec<u8> {
    header.metadata_len = u32::try_from(block.len()).expect("it is short");
    record(WHOLE, 0, &[&header.to_bytes()[..], block].concat())
}

/// A metadata entry, whatever is in it.
fn entry(name: &str, value: &str) -> Vec<u8> {
    let name_len = u16::try_from(name.len()).expect("it is short").to_le_bytes();
    let value_len = u32::try_from(value.len()).expect("it is short").to_le_bytes();
    [&name_len[..], &value_len, name.as_bytes(), value.as_bytes()].concat()
}

fn request(call: u64, name: &str, block: &[u8]) -> Vec<u8> {
    let header =
        FrameHeader { selector: method(name), ..FrameHeader::bare(FrameKind::Request, call) };
    with_block(header, block)
}

/// Whatever a client can say to a server: what comes first, and what comes behind a good Hello.
fn openings() -> Vec<Vec<u8>> {
    let hello = Hello {
        offers: vec![offer(poison("offer-name")), offer("rdma".into()), offer(long("offer-long"))],
        ..Hello::new(&Limits::default())
    };
    let garbage = [&hello_bytes(Vec::new())[..12], &[9, 0, 0, 0], b"\n\x1b[31mFORG"].concat();
    vec![hello::encode(&hello).expect("it is short"), poison("magic").into_bytes(), garbage]
}

fn frames() -> Vec<Vec<u8>> {
    let ascii = entry("x-text", "\u{9b}31m ä").into_iter().chain(entry("x-bin", &poison("bin")));
    vec![
        request(1, "/Echo", &ascii.collect::<Vec<u8>>()),
        request(1, "/Echo", &entry(&poison("key"), "value")),
        request(1, "/Echo", &entry("key", &poison("value"))),
        request(1, "/Echo", poison("block").as_bytes()),
        record(WHOLE, 0, &frame(FrameKind::Request, 1, method("/Echo"), long("body").as_bytes())),
        with_block(FrameHeader::bare(FrameKind::GoAway, 0), poison("goaway").as_bytes()),
        with_block(FrameHeader::bare(FrameKind::Ping, 0), poison("ping").as_bytes()),
        record(WHOLE, 0, &long("frame").into_bytes()),
        record(b'\n', 0, b"\x1b[31m"),
    ]
}

async fn attack_server() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let builder = Server::builder().layer(TraceLayer::new());
    let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
    let serving = tokio::spawn(server.serve_incoming(listener));
    for opening in openings() {
        let mut peer = RawPeer::connect(&address).await?;
        let _ = peer.send(&opening).await;
        let _ = peer.finish().await;
        peer.closed().await;
    }
    for frame in frames() {
        let mut peer = RawPeer::connect(&address).await?;
        peer.greet().await?;
        let _ = peer.send(&frame).await;
        let _ = peer.finish().await;
        peer.closed().await;
    }
    serving.abort();
    Ok(())
}

/// A status with poison in all its parts.
fn poisoned_status() -> Vec<u8> {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin("x-bin", tonic::metadata::MetadataValue::from_bytes(b"\n\x1b[31mFORGED"));
    let details = Bytes::from(long("details"));
    let message = long("status");
    let code = Code::Unavailable;
    let status = Status::with_details_and_metadata(code, message, details, metadata);
    let mut block = Vec::new();
    let outcome = Outcome { metadata: MetadataMap::new(), result: Err(status) };
    outcome.encode(&mut block).expect("it is short");
    block
}

fn response(block: &[u8]) -> Vec<u8> {
    let header = FrameHeader { selector: 14, ..FrameHeader::bare(FrameKind::Response, 0) };
    with_block(header, block)
}

/// Returns a server's bytes to a client: its Hello, and its answer to the first call. `None`
/// closes.
fn scripts() -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let methods = || SERVICE.methods.iter().map(|it| it.path.to_owned()).collect::<Vec<_>>();
    let good = hello_bytes([methods(), vec![poison("method"), long("method")]].concat());
    // `Declined::new` cuts what it is given. An offer has the same fields on the wire.
    let declined = |name: String, reason: String| {
        let raw = Offer { name, blob: reason.into() }.encode_to_vec();
        Declined::decode(&*raw).expect("it is one")
    };
    let declining = Hello {
        declined: vec![
            declined(poison("declined-name"), poison("reason")),
            declined(long("declined-name"), long("reason")),
        ],
        methods: methods(),
        ..Hello::new(&Limits::default())
    };
    let declining = hello::encode(&declining).expect("it is short");
    let accepting =
        Hello { accepted: Some(offer(long("accepted"))), ..Hello::new(&Limits::default()) };
    let accepting = hello::encode(&accepting).expect("it is short");
    let goaway = with_block(FrameHeader::bare(FrameKind::GoAway, 0), poison("goaway").as_bytes());
    vec![
        (declining.clone(), Some(response(&poisoned_status()))),
        (declining, None),
        (accepting, None),
        (good.clone(), Some(response(&poisoned_status()))),
        (good.clone(), Some(response(poison("block").as_bytes()))),
        (good.clone(), Some(goaway)),
        (good.clone(), Some(record(WHOLE, 0, &long("frame").into_bytes()))),
        // The call is lost, and made once more.
        (good.clone(), Some(Vec::new())),
        (good, None),
        (poison("magic").into_bytes(), None),
    ]
}

/// Serves one connection by its script.
async fn serve(listener: &tokio::net::TcpListener, hello: &[u8], answer: Option<&[u8]>) {
    let Ok((stream, _)) = listener.accept().await else { return };
    let mut peer = RawPeer::new(stream);
    // A client's Hello is a server's with other fields, and the same prefix.
    let _ = peer.read_hello().await;
    let _ = peer.send(hello).await;
    let Some(answer) = answer else { return };
    if peer.read_frame().await.is_ok() {
        let _ = peer.send(answer).await;
    }
    let _ = peer.finish().await;
    peer.closed().await;
}

async fn attack_client() -> Result<(), Failure> {
    for (hello, answer) in scripts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let connector = TcpConnector::new(address, ClientConfig::default());
        let settings = &connector.config().settings;
        assert!(settings.replay_idempotent, "calls that are lost are made once more");
        let stub = ProbeStub::new(Channel::new(connector).layer(TraceLayer::new()));
        let calls = async {
            let echo = stub.echo(EchoRequest::default()).await;
            // The next one sees why there is no connection.
            let wait = stub.wait(ParkRequest::default()).await;
            assert!(echo.is_err() && wait.is_err());
        };
        let serving = async {
            for _ in 0..3 {
                serve(&listener, &hello, answer.as_deref()).await;
            }
        };
        tokio::select! {
            () = calls => {}
            () = async { serving.await; std::future::pending().await } => {}
        }
    }
    Ok(())
}

fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}')
}

#[tokio::test]
async fn what_peers_write_into_their_fields_does_no_harm_in_the_log() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(|| Logged)
        .init();
    let attacks = async {
        attack_server().await?;
        attack_client().await
    };
    tokio::time::timeout(LIMIT, attacks).await.expect("the attacks end")?;
    let log = LOG.lock().clone();
    let log = String::from_utf8_lossy(&log);
    for line in log.split('\n') {
        assert!(!line.starts_with(FORGED), "a peer's line: {line}");
        assert!(!line.contains(is_harmful), "{line:?}");
        assert!(line.len() <= LINE_LEN_MAX, "{} bytes: {line}", line.len());
    }
    // They were there: what has reached the log is escaped, and cut.
    let parts = [
        r"offer-name\nFORGED",
        r"declined-name\nFORGED",
        r"reason\nFORGED",
        r"accepted\nFORGED",
        "bytes left out]",
        "replayed",
    ];
    for part in parts {
        assert!(log.contains(part), "{part} is not in the log");
    }
    Ok(())
}
