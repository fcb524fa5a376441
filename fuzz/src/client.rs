//! The client's session: calls of all kinds, started, dropped and timed out, while the server does
//! anything.
//!
//! Every call ends exactly once, none is left in the table, and what the session sends keeps to
//! the protocol and to the windows that it was granted. What it holds keeps to `Limits`.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use parking_lot::Mutex;
use rpc_core::client::{
    ClientConfig, Connect, Connection, Established, client_streaming, connect, server_streaming,
    streaming, unary,
};
use rpc_core::connect::{ConnectError, ConnectFault, Wanted};
use rpc_core::wire::FrameKind;
use rpc_core::wire::hello::{self, Hello};
use rpc_core::{
    CallKind, Channel, Compression, Deadline, Idempotency, Limits, MethodDescriptor, Request,
    Status,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::craft::{Ask, Rarely};
use crate::heap;
use crate::ledger::{Ledger, View};
use crate::peer::{Move, Peer, STEPS_MAX, compression_of, limits_of};
use crate::scripted::{Scripted, ScriptedBootstrap};

/// One method of each kind, by their ids.
pub(crate) static METHODS: [MethodDescriptor; 4] = [
    method("/fuzz.Fuzz/Unary", CallKind::Unary),
    method("/fuzz.Fuzz/Upload", CallKind::ClientStreaming),
    method("/fuzz.Fuzz/Download", CallKind::ServerStreaming),
    method("/fuzz.Fuzz/Chat", CallKind::Streaming),
];

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, Idempotency::Unknown)
}

/// Returns the kinds of frames that a server may send.
fn kinds(view: Option<View>) -> &'static [FrameKind] {
    use FrameKind::{Headers, Messages, Response, Window};
    let Some(View { method, place, .. }) = view else { return &[Response] };
    match METHODS.get(usize::from(method)).map(|method| method.kind) {
        Some(CallKind::Unary) | None => &[Response],
        Some(CallKind::ClientStreaming) => &[Response, Window, Window],
        Some(CallKind::ServerStreaming | CallKind::Streaming) if place == 0 => {
            &[Headers, Headers, Headers, Response, Window]
        }
        Some(CallKind::ServerStreaming) => &[Messages, Messages, Messages, Messages, Response],
        Some(CallKind::Streaming) => &[Messages, Messages, Messages, Window, Window, Response],
    }
}

/// Number of the latest calls among which the server picks the one to answer.
const RECENT: u8 = 6;

/// The most calls that callers make at a time: more than the server admits, so that some wait.
const CALLERS_MAX: usize = 12;

/// Time in which everything must end after the link has, on the paused clock.
const END_LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug, Arbitrary)]
#[allow(clippy::large_enum_variant, reason = "it lives for one step")]
enum ClientStep {
    Start(Start),
    /// A caller drops its call.
    Drop(Rarely, u8),
    Peer(Move),
    Moves([Move; 3]),
}

#[derive(Debug, Arbitrary)]
struct Start {
    method: u8,
    len: u16,
    /// Messages of a request stream.
    count: u8,
    deadline_ms: Option<u8>,
    reader: Reader,
}

/// A way to read a stream of responses.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Reader {
    AtOnce,
    /// With a pause before each message.
    Slow {
        pause_ms: u8,
    },
    Never,
}

impl Reader {
    async fn turn(self) {
        match self {
            Self::AtOnce => {}
            Self::Slow { pause_ms } => {
                tokio::time::sleep(Duration::from_millis(pause_ms.into())).await;
            }
            Self::Never => std::future::pending().await,
        }
    }
}

/// Gives away its one connection.
#[derive(Debug)]
struct Once {
    config: ClientConfig,
    connection: Mutex<Option<Established>>,
}

impl Connect for Once {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        "scripted".into()
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        let connection = self.connection.lock().take();
        let (address, reason) = ("scripted".into(), "there is one connection".into());
        let connection =
            connection.ok_or(ConnectError::from(ConnectFault::Address { address, reason }));
        std::future::ready(connection).boxed()
    }
}

pub(crate) fn run(bytes: &[u8]) {
    heap::check_returned(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.expect("a runtime without I/O needs nothing").block_on(script(bytes));
    });
}

type CallTask = JoinHandle<Result<u64, Status>>;

async fn script(bytes: &[u8]) {
    let (link, limits) = (Scripted::default(), limits_of(bytes));
    let mut peer = Peer::new("client", limits, link.clone(), kinds);
    peer.heap.allow_compressed(compression_of(bytes));
    let connection = open(&link, limits, compression_of(bytes)).await;
    let once =
        Once { config: ClientConfig::default(), connection: Mutex::new(Some(connection.clone())) };
    let channel = Channel::new(once);
    let mut calls: Vec<CallTask> = Vec::with_capacity(CALLERS_MAX);
    let mut input = Unstructured::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = ClientStep::arbitrary(&mut input) else { break };
        match step {
            ClientStep::Start(start) if calls.len() < CALLERS_MAX => {
                calls.push(tokio::spawn(call(channel.clone(), start)));
                peer.caller_count = calls.len();
            }
            ClientStep::Drop(rarely, pick) if rarely.is_now() && !calls.is_empty() => {
                calls.swap_remove(usize::from(pick) % calls.len()).abort();
            }
            ClientStep::Start(_) | ClientStep::Drop(..) => {}
            ClientStep::Peer(step) => peer.make(step, pick).await,
            ClientStep::Moves(steps) => {
                for step in steps {
                    peer.make(step, pick).await;
                }
            }
        }
        peer.settle().await;
        for call in calls.extract_if(.., |call| call.is_finished()) {
            check_ended(call).await;
        }
        peer.caller_count = calls.len();
        let in_flight = connection.info().calls_in_flight;
        let most = peer.ledger.open_count().min(limits.max_calls as usize);
        assert!(in_flight <= most, "{in_flight} calls are kept, not {most}");
    }
    end(peer, calls, &*connection).await;
}

/// Ends the link, and waits for every call.
async fn end(mut peer: Peer, calls: Vec<JoinHandle<Result<u64, Status>>>, end: &dyn Connection) {
    end.close();
    peer.settle().await;
    peer.link.end(rpc_core::transport::CloseReason::Peer);
    for call in calls {
        // Dropped by its caller, which may read nothing any more.
        call.abort();
        check_ended(call).await;
    }
    peer.settle().await;
    assert_eq!(end.info().calls_in_flight, 0);
}

/// Waits for the end of a call.
async fn check_ended(call: CallTask) {
    let ended = tokio::time::timeout(END_LIMIT, call).await.expect("a call ends with its link");
    // Whatever it ended with; but it has not panicked.
    assert!(!ended.is_err_and(|error| error.is_panic()), "a call ends without a panic");
}

/// The call that a frame names: one of the session's, or one that never was.
fn pick(ledger: &Ledger, number: u8) -> u64 {
    let ids = ledger.ids();
    match ids.len() {
        0 => number.into(),
        // Those that were started last, which are the highest, are still in flight, if any are.
        count => ids[count - 1 - usize::from(number % RECENT) % count],
    }
}

async fn open(link: &Scripted, limits: Limits, compression: Compression) -> Established {
    let mut server = Hello::new(&limits);
    server.encodings = if compression.accept { hello::DEFLATE } else { 0 };
    server.methods = METHODS.iter().map(|method| method.path.to_owned()).collect();
    let incoming = hello::encode(&server).expect("a short Hello encodes");
    let incoming = std::io::Cursor::new(incoming);
    let bootstrap = Box::new(ScriptedBootstrap { incoming, link: link.clone() });
    let config = ClientConfig::with_settings(|settings| {
        settings.limits = limits;
        settings.compression = compression;
    });
    connect(bootstrap, &"scripted".into(), &config, Wanted::Best)
        .await
        .expect("the server's Hello is good")
}

/// Makes a call and reads its answer to the end; says how many messages that had.
async fn call(channel: Channel, start: Start) -> Result<u64, Status> {
    let ask = Ask { len: start.len.into(), ..Ask::default() };
    let messages = stream::iter(std::iter::repeat_n(ask.clone(), start.count.into()));
    let method = &METHODS[usize::from(start.method) % METHODS.len()];
    let deadline =
        start.deadline_ms.map(|ms| Deadline(Instant::now() + Duration::from_millis(ms.into())));
    let mut replies = match method.kind {
        CallKind::Unary => {
            return unary::<_, Ask>(&channel, method, request(ask, deadline)).await.map(|_| 1);
        }
        CallKind::ClientStreaming => {
            let reply = client_streaming::<_, Ask>(&channel, method, request(messages, deadline));
            return reply.await.map(|_| 1);
        }
        CallKind::ServerStreaming => {
            server_streaming::<_, Ask>(&channel, method, request(ask, deadline)).await?.into_inner()
        }
        CallKind::Streaming => {
            streaming::<_, Ask>(&channel, method, request(messages, deadline)).await?.into_inner()
        }
    };
    let mut count = 0;
    loop {
        start.reader.turn().await;
        match replies.message().await? {
            Some(_) => count += 1,
            None => return Ok(count),
        }
    }
}

fn request<T>(message: T, deadline: Option<Deadline>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.extensions_mut().insert(deadline);
    }
    request
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    crate::seeds::seeds::<ClientStep>()
}
