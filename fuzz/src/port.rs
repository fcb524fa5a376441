//! The first bytes at a server's port, where farcall, HTTP/2 and HTTP/1 are told apart, and what
//! comes behind them.
//!
//! A whole server, the real one, takes one connection. What it answers is in the protocol that the
//! client began with. However little comes, and whether or not the client closes, the connection
//! ends, and all that it held comes back: heap, permits, and the server's memory budget.

use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use rpc_core::server::{
    HandlerFuture, Offers, OtherProtocol, ServerCall, ServerParts, ServerSettings,
};
use rpc_core::wire::hello::{self, Hello};
use rpc_core::wire::{MAGIC, Spoken};
use rpc_core::{Limits, Request, Response, Service, ServiceDescriptor, Status};
use rpc_transport_grpc::{GrpcPort, Http1Port};
use rpc_transport_tcp::StreamListener;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, duplex};

use crate::client::METHODS;
use crate::craft::Ask;
use crate::heap::{self, Heap};
use crate::peer::limits_of;

static SERVICE: ServiceDescriptor = ServiceDescriptor { name: "fuzz.Fuzz", methods: &METHODS };

/// Time in which everything must end, on the paused clock. Keepalive ends a connection that opens
/// and stays silent.
const END_LIMIT: Duration = Duration::from_secs(3600);

/// Capacity of each direction of the pipe, in bytes. The trial's own memory.
const PIPE_LEN: usize = 4 << 10;

/// Answers with what it was asked, whatever the method.
struct Echo;

impl Service for Echo {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async |request: Request<Ask>| {
            Ok::<_, Status>(Response::new(request.into_inner()))
        })
    }
}

/// The first byte says how many bytes come at a time, and whether the client closes behind them.
pub(crate) fn run(bytes: &[u8]) {
    let Some((manner, bytes)) = bytes.split_first() else { return };
    heap::check_returned(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let trial = trial(*manner, bytes, limits_of(&[*manner]));
        runtime.expect("a runtime without I/O needs nothing").block_on(trial);
    });
}

async fn trial(manner: u8, bytes: &[u8], limits: Limits) {
    let (step, closes) = (usize::from(manner >> 1) + 1, manner & 1 == 1);
    let protocols: [Arc<dyn OtherProtocol>; 2] =
        [Arc::new(GrpcPort::default()), Arc::new(Http1Port::default())];
    let mut offers = Offers::default();
    offers.protocols = protocols.into();
    let mut settings = ServerSettings::default();
    settings.limits = limits;
    let mut heap = Heap::new("port", &limits);
    let server = ServerParts::default().add_service(Echo).build(settings);
    let (client, ours) = heap.apart(|| duplex(PIPE_LEN));
    let incoming = stream::iter([Ok::<_, std::io::Error>(ours)]);
    let listener = StreamListener::new(incoming).with_offers(offers);
    let serving = server.clone();
    let serving = tokio::spawn(async move { serving.serve(listener).await });
    let (reading, mut writing) = tokio::io::split(client);
    let reading = tokio::spawn(answer(reading));
    for piece in bytes.chunks(step) {
        // The server may have closed.
        if writing.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
        heap.check_http();
        if bytes.starts_with(b"PRI * HTTP/2") {
            heap.check_counted(server.memory_held());
        }
    }
    if closes {
        let _ = writing.shutdown().await;
    }
    let begun = async { tokio::join!(serving, reading) };
    let (served, answered) =
        tokio::time::timeout(END_LIMIT, begun).await.expect("the connection ends");
    served.expect("the server does not panic").expect("the listener does not fail");
    check_answer(bytes, &answered.expect("the client does not panic"));
    assert_eq!((server.calls_running(), server.memory_held()), (0, 0), "the server's budgets");
    assert!(server.connections().is_empty());
}

/// The first bytes of what the server answers, of which all is read.
async fn answer(mut reading: ReadHalf<DuplexStream>) -> Vec<u8> {
    let (mut first, mut piece) = (Vec::new(), [0; 512]);
    while let Ok(len) = reading.read(&mut piece).await
        && len > 0
    {
        let wanted = MAGIC.len().saturating_sub(first.len()).min(len);
        first.extend_from_slice(&piece[..wanted]);
    }
    first
}

/// An answer is in the protocol of the client, or in farcall's.
fn check_answer(said: &[u8], answered: &[u8]) {
    if answered.is_empty() {
        return;
    }
    let said = Spoken::of(&said[..said.len().min(MAGIC.len())]);
    match Spoken::of(answered) {
        Some(Spoken::Farcall) => {
            assert!(matches!(said, Some(Spoken::Farcall | Spoken::Tls)), "{said:?}");
        }
        spoken => assert_eq!(spoken, said, "{answered:02x?}"),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = hello::encode(&Hello::new(&Limits::default())).expect("a short Hello encodes");
    let call = grpc_call();
    let message = [0, 0, 0, 0, 0];
    let opening = call[..33].to_vec();
    let later = |calls: u8, body: &[u8]| {
        let calls = (0..calls).map(|number| http2_headers(2 * number + 1, "/fuzz.Fuzz/Unary", 3));
        [opening.clone(), calls.collect::<Vec<_>>().concat(), body.to_vec()].concat()
    };
    let tiny = http2_frame(0, 0, 1, &[0]).repeat(5);
    let resets = [1, 3].map(|stream| http2_frame(3, 0, stream, &[0, 0, 0, 8])).concat();
    let pongs = http2_frame(6, 1, 0, b"farcall!").repeat(3);
    let unknown = [http2_headers(1, "/fuzz.Fuzz/None", 0), http2_headers(3, "/", 9)].concat();
    let endless = http2_frame(9, 0, 1, &[0]).repeat(9);
    let begun = http2_frame(1, 0, 1, &[0x83]);
    let web = b"POST /fuzz.Fuzz/Unary HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\
        content-type: application/grpc-web\r\n\r\n";
    let said = [
        hello,
        call[..20].to_vec(),
        call[..33].to_vec(),
        call,
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nhost: ".to_vec(),
        [&web[..], &message].concat(),
        web.to_vec(),
        later(4, &[]),
        later(1, &tiny),
        later(2, &resets),
        later(0, &pongs),
        later(0, &unknown),
        later(0, &[begun, endless].concat()),
        b"OPTIONS * HTTP/1.1\r\n\r\n".to_vec(),
        vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        Vec::new(),
    ];
    said.into_iter()
        .flat_map(|bytes| [0, 1, 13, 254, 255].map(|manner| [&[manner], &bytes[..]].concat()))
        .collect()
}

/// A call of gRPC over HTTP/2: the preface, SETTINGS, HEADERS and DATA.
fn grpc_call() -> Vec<u8> {
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        http2_frame(4, 0, 0, &[]),
        http2_headers(1, "/fuzz.Fuzz/Unary", 0),
        http2_frame(0, 1, 1, &[0, 0, 0, 0, 0]),
    ]
    .concat()
}

/// The headers of a call, with so many more.
fn http2_headers(stream: u8, path: &str, more: u8) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ] {
        // A literal of HPACK that is not indexed, with a name of its own.
        headers.push(0);
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).unwrap_or(0));
            headers.extend_from_slice(text.as_bytes());
        }
    }
    for number in 0..more {
        headers.extend([0, 2, b'x', b'a' + number % 26, 0]);
    }
    http2_frame(1, 4, stream, &headers)
}

fn http2_frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap_or(0);
    [&[0, 0, len, kind, flags, 0, 0, 0, stream][..], payload].concat()
}
