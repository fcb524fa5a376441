//! The server's session: handlers that take their time, fail and panic, while the client does
//! anything.
//!
//! Every handler that starts ends, at most as many as promised run at a time, none is left in the
//! table, a call is answered at most once, and a shutdown ends. What the session holds keeps to
//! `Limits`, and all of it comes back: heap, permits, and the server's memory budget.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use rpc_core::connect::Bootstrap;
use rpc_core::server::{HandlerFuture, Listen, ServerCall, ServerParts, ServerSettings};
use rpc_core::transport::CloseReason;
use rpc_core::wire::FrameKind;
use rpc_core::wire::hello::{self, Hello};
use rpc_core::{CallKind, Request, Response, Service, ServiceDescriptor, Status, Streaming};
use tokio::sync::oneshot;

use crate::client::METHODS;
use crate::craft::{Ask, Rarely};
use crate::heap;
use crate::ledger::{Ledger, View};
use crate::peer::{Move, Peer, STEPS_MAX, compression_of, limits_of};
use crate::scripted::{Scripted, ScriptedBootstrap};

static SERVICE: ServiceDescriptor = ServiceDescriptor { name: "fuzz.Fuzz", methods: &METHODS };

/// Few ids, so that they meet again.
const IDS: u8 = 8;

/// Time that a shutdown waits for handlers. All finish earlier, unless the client never widens
/// their windows.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The server's memory budget, in bytes: what a handshake counts. Windows and requests meet it.
const MEMORY_MAX: u64 = 128 << 10;

/// Returns the kinds of frames that a client may send.
fn kinds(view: Option<View>) -> &'static [FrameKind] {
    use FrameKind::{Cancel, HalfClose, Messages, Request, Window};
    match view {
        None | Some(View { is_over: true, .. }) => &[Request],
        Some(_) => &[Messages, Messages, Messages, Window, Window, HalfClose, Cancel],
    }
}

/// Time in which everything must end after the link has, on the paused clock.
const END_LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug, Arbitrary)]
enum ServerStep {
    Peer(Move),
    Shutdown(Rarely, Rarely),
}

/// Does what it is asked to, and counts what runs.
#[derive(Debug, Clone, Default)]
struct Obedient {
    running: Arc<AtomicUsize>,
}

/// A handler that runs.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service for Obedient {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(&self.running));
        match METHODS.get(method).map(|method| method.kind) {
            Some(CallKind::Unary) => call.unary(async move |request| {
                let _running = running;
                one(request).await
            }),
            Some(CallKind::ClientStreaming) => call.client_streaming(async move |request| {
                let _running = running;
                gather(request).await
            }),
            Some(CallKind::ServerStreaming) => {
                call.server_streaming(async move |request| many(running, request).await)
            }
            Some(CallKind::Streaming) => {
                call.streaming(async move |request| echoes(running, request))
            }
            None => call.unimplemented(),
        }
    }
}

async fn one(request: Request<Ask>) -> Result<Response<Ask>, Status> {
    let ask = request.into_inner();
    tokio::time::sleep(Duration::from_millis(u64::from(ask.delay_ms % 300))).await;
    finish(&ask)?;
    Ok(Response::new(ask))
}

/// Pauses a reader between two messages, or stops it for good.
async fn turn(ask: &Ask) {
    match ask.end % 8 {
        3 => std::future::pending().await,
        4 => tokio::time::sleep(Duration::from_millis(u64::from(ask.delay_ms % 300))).await,
        _ => {}
    }
}

async fn gather(request: Request<Streaming<Ask>>) -> Result<Response<Ask>, Status> {
    let mut asks = request.into_inner();
    let mut last = Ask::default();
    while let Some(ask) = asks.message().await? {
        last = ask;
        turn(&last).await;
    }
    finish(&last)?;
    Ok(Response::new(last))
}

async fn many(
    running: Running,
    request: Request<Ask>,
) -> Result<Response<impl Stream<Item = Result<Ask, Status>>>, Status> {
    let ask = request.into_inner();
    tokio::time::sleep(Duration::from_millis(u64::from(ask.delay_ms % 300))).await;
    let count = (ask.count % 50) as usize;
    let end = finish(&ask).err().map(Err);
    let replies = stream::iter(std::iter::repeat_n(Ok(ask), count)).chain(stream::iter(end));
    Ok(Response::new(kept(running, replies)))
}

fn echoes(
    running: Running,
    request: Request<Streaming<Ask>>,
) -> Result<Response<impl Stream<Item = Result<Ask, Status>>>, Status> {
    let echoes = request.into_inner().then(async |ask| {
        let ask = ask?;
        turn(&ask).await;
        Ok(ask)
    });
    Ok(Response::new(kept(running, echoes)))
}

/// A stream that counts as a handler that runs.
fn kept<S: Stream>(running: Running, stream: S) -> impl Stream<Item = S::Item> {
    stream.map(move |item| {
        let _ = &running;
        item
    })
}

/// Ends a request as it asks to.
fn finish(ask: &Ask) -> Result<(), Status> {
    match ask.end % 8 {
        1 => Err(Status::aborted("as asked")),
        // As `panic!`, without words among the output.
        2 => std::panic::resume_unwind(Box::new("as asked")),
        _ => Ok(()),
    }
}

/// Gives away its one stream.
#[derive(Debug)]
struct Once(Option<ScriptedBootstrap>);

impl Listen for Once {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match self.0.take() {
            Some(bootstrap) => std::future::ready(Ok(Some(Box::new(bootstrap) as _))).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

pub(crate) fn run(bytes: &[u8]) {
    heap::check_returned(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.expect("a runtime without I/O needs nothing").block_on(script(bytes));
    });
}

async fn script(bytes: &[u8]) {
    let (link, limits) = (Scripted::default(), limits_of(bytes));
    let service = Obedient::default();
    let running = Arc::clone(&service.running);
    let compression = compression_of(bytes);
    let mut settings = ServerSettings::default();
    (settings.limits, settings.compression) = (limits, compression);
    (settings.max_memory, settings.drain_timeout) = (Some(MEMORY_MAX), DRAIN_TIMEOUT);
    let server = ServerParts::default().add_service(service).build(settings);
    let mut hello = Hello::new(&limits);
    hello.encodings = if compression.accept { hello::DEFLATE } else { 0 };
    let hello = hello::encode(&hello).expect("a short Hello encodes");
    let incoming = io::Cursor::new(hello);
    let listener = Once(Some(ScriptedBootstrap { incoming, link: link.clone() }));
    let (shutdown, shut_down) = oneshot::channel::<()>();
    let mut shutdown = Some(shutdown);
    let serving = server.clone();
    let serving = tokio::spawn(async move {
        serving.serve_until(listener, async { drop(shut_down.await) }).await
    });
    let mut peer = Peer::new("server", limits, link, kinds);
    peer.heap.allow_compressed(compression);
    peer.settle().await;
    let mut input = Unstructured::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = ServerStep::arbitrary(&mut input) else { break };
        match step {
            ServerStep::Peer(step) => peer.make(step, pick).await,
            ServerStep::Shutdown(one, other) if one.is_now() && other.is_now() => {
                drop(shutdown.take());
            }
            ServerStep::Shutdown(..) => {}
        }
        peer.settle().await;
        let in_flight: usize = server.connections().iter().map(|info| info.calls_in_flight).sum();
        let most = peer.ledger.open_count().min(limits.max_calls as usize);
        assert!(in_flight <= most, "{in_flight} calls are kept, not {most}");
    }
    peer.link.set_full(false);
    peer.link.end(CloseReason::Peer);
    drop(shutdown);
    let served = tokio::time::timeout(END_LIMIT, serving).await.expect("a shutdown ends");
    served.expect("the server does not panic").expect("the listener does not fail");
    peer.settle().await;
    assert_eq!(running.load(Ordering::Relaxed), 0, "handlers are left");
    assert!(server.connections().iter().all(|info| info.calls_in_flight == 0));
    assert_eq!((server.calls_running(), server.memory_held()), (0, 0), "the server's budgets");
}

/// The call that a frame names.
fn pick(_: &Ledger, number: u8) -> u64 {
    u64::from(number % IDS)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    crate::seeds::seeds::<ServerStep>()
}
