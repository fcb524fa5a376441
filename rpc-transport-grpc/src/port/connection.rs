//! A client of gRPC, as a connection of the server: the session in the process, and HTTP before it.

use std::convert::Infallible;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rpc_core::connect::{ConnectionInfo, Gateway, Replayed};
use rpc_core::policy::keepalive::Traffic;
use rpc_core::policy::lifetime::CallCounts;
use rpc_core::policy::progress::Flows;
use rpc_core::server::ServerConnection;
use rpc_core::transport::CloseReason;
use rpc_core::{Keepalive, Limits};
use tokio_util::sync::CancellationToken;

use super::cross_origin::CrossOrigin;
use super::flow::Flowing;
use super::noted_wakes::NotedWakes;
use super::service::PortService;
use super::stream::CountedStream;

/// What a client has to send before its first request: the rest of the preface, and the header of
/// its SETTINGS.
const OPENING_LEN: u64 = 24 + 9;

/// What all streams of a connection together may send that this side has not read, in bytes. It
/// counts in the server's memory budget for as long as the connection lives. HTTP/2's own default
/// is 64 KiB; four streams' worth of that let one wait without stopping the others.
const CONNECTION_WINDOW: u32 = 256 << 10;

/// The same of one stream: HTTP/2's default.
const STREAM_WINDOW: u32 = 64 << 10;

/// What hyper may keep of the responses of one stream, in bytes. What is longer stays with the
/// response, where it counts.
const SEND_BUFFER_LEN: usize = 64 << 10;

/// The least room for the headers of a request, in bytes: gRPC's own take some hundred. Metadata
/// has the server's limit beside that.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// How many streams a client may have reset that this side has not looked at yet, before its
/// connection is ended: the defence against *rapid reset* (CVE-2023-44487). h2's own default.
const PENDING_RESETS_MAX: usize = 20;

/// How many streams this side may reset for a client's mistakes before the connection is ended. A
/// client that works makes none. h2's own default is 1,024.
const MISTAKES_MAX: usize = 128;

/// A connection of a client of gRPC.
pub(super) struct PortConnection {
    session: Arc<dyn ServerConnection>,
    flowing: Arc<Flowing>,
    /// What is served, until it is.
    waiting: Mutex<Option<Serving>>,
    /// Set when the client is to be sent away.
    going_away: CancellationToken,
    /// Set when the connection is to end at once.
    stop: CancellationToken,
    /// Set when HTTP/2 has ended.
    ended: CancellationToken,
}

/// Which HTTP a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http {
    One,
    Two,
}

/// What HTTP is served with.
struct Serving {
    http: Http,
    stream: Replayed,
    service: PortService,
    limits: Limits,
    keepalive: Option<Keepalive>,
    opening_timeout: Duration,
}

impl PortConnection {
    pub(super) fn new(gateway: Gateway, http: Http, cross_origin: &Arc<CrossOrigin>) -> Arc<Self> {
        let Gateway {
            stream,
            channel,
            session,
            methods,
            memory,
            limits,
            keepalive,
            handshake_timeout,
            draining,
        } = gateway;
        let flowing = Arc::<Flowing>::default();
        let max_message_len = limits.max_message_len;
        let service = PortService {
            channel,
            methods,
            memory,
            flowing: Arc::clone(&flowing),
            max_message_len,
            body_timeout: handshake_timeout,
            draining,
            cross_origin: Arc::clone(cross_origin),
        };
        let opening_timeout = handshake_timeout;
        let serving = Serving { http, stream, service, limits, keepalive, opening_timeout };
        Arc::new(Self {
            session,
            flowing,
            waiting: Mutex::new(Some(serving)),
            going_away: CancellationToken::new(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }
}

/// The rules of HTTP/2, most of which are there against peers that mean harm. Beside these h2
/// bounds CONTINUATION frames by the length of the headers that they may make, and answers a
/// SETTINGS or a PING before it reads the next one.
fn rules(limits: &Limits, keepalive: Option<Keepalive>) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_calls)
        .max_header_list_size(limits.max_metadata_len.saturating_add(HEADERS_LEN_MIN))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER_LEN)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(MISTAKES_MAX);
    if let Some(keepalive) = keepalive {
        builder.keep_alive_interval(keepalive.interval).keep_alive_timeout(keepalive.timeout);
    }
    builder
}

/// When a connection has to end.
struct Ends {
    going_away: CancellationToken,
    stop: CancellationToken,
}

impl Serving {
    /// Serves HTTP until it ends, by itself or because it has to.
    async fn serve(self, flowing: Arc<Flowing>, ends: Ends) {
        let Self { http, stream, service, limits, keepalive, opening_timeout } = self;
        let Ok(_window) = service.memory.try_take(CONNECTION_WINDOW.into()) else { return };
        let stream = TokioIo::new(CountedStream::new(stream, Arc::clone(&flowing)));
        let answer = service_fn(move |request| {
            let service = service.clone();
            // hyper moves the future of a request from task to task's memory, some nine times.
            async move { Ok::<_, Infallible>(service.answer(request).await) }.boxed()
        });
        match http {
            Http::One => {
                let rules = super::http1::rules(&limits, opening_timeout);
                let connection = rules.serve_connection(stream, answer);
                // hyper bounds the time of a request's head.
                drive(connection, pending(), ends, http1::Connection::graceful_shutdown).await;
            }
            Http::Two => {
                let connection = rules(&limits, keepalive).serve_connection(stream, answer);
                let late = async {
                    tokio::time::sleep(opening_timeout).await;
                    if flowing.read_bytes() >= OPENING_LEN {
                        pending::<()>().await;
                    }
                };
                drive(connection, late, ends, http2::Connection::graceful_shutdown).await;
            }
        }
    }
}

/// Drives a connection until it ends, or has to: at once, or when the client is `late`. One that is
/// to go away is told to `leave`.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    late: impl Future<Output = ()>,
    ends: Ends,
    leave: impl Fn(Pin<&mut C>),
) {
    let Ends { going_away, stop } = ends;
    let (mut connection, mut late) = (pin!(connection), pin!(late));
    let (mut is_leaving, wakes) = (false, NotedWakes::default());
    loop {
        tokio::select! {
            ended = poll_fn(|cx| wakes.poll(connection.as_mut(), cx)) => {
                if let Err(error) = ended {
                    tracing::debug!(
                        target: "farcall::server", %error, "a connection over HTTP has ended"
                    );
                }
                return;
            }
            () = stop.cancelled() => return,
            () = &mut late => return,
            () = going_away.cancelled(), if !is_leaving => {
                is_leaving = true;
                leave(connection.as_mut());
            }
        }
    }
}

impl ServerConnection for PortConnection {
    fn start(&self) {
        self.session.start();
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(serving) = waiting else { return };
        let ends = Ends { going_away: self.going_away.clone(), stop: self.stop.clone() };
        let served = serving.serve(Arc::clone(&self.flowing), ends);
        let ended = self.ended.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            served.await;
        });
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        async {
            self.ended.cancelled().await;
            self.session.close();
            self.session.closed().await;
        }
        .boxed()
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        async {
            // HTTP/2 ends with its last call, once the client was sent away. A session that refused
            // calls before that would fail those that have crossed the word.
            self.ended.cancelled().await;
            self.session.drained().await;
        }
        .boxed()
    }

    fn go_away(&self) {
        self.going_away.cancel();
    }

    fn ping(&self, number: u64) {
        // HTTP/2 has pings of its own, which find a client that is gone.
        self.session.ping(number);
    }

    fn traffic(&self) -> Traffic {
        self.session.traffic()
    }

    fn has_unread(&self) -> bool {
        self.session.has_unread()
    }

    fn flows(&self) -> Flows {
        self.flowing.flows()
    }

    fn calls(&self) -> CallCounts {
        self.session.calls()
    }

    fn is_flushed(&self) -> bool {
        self.ended.is_cancelled()
    }

    fn abort(&self, reason: CloseReason) {
        self.stop.cancel();
        self.session.abort(reason);
    }

    fn close(&self) {
        self.stop.cancel();
        self.session.close();
    }

    fn info(&self) -> ConnectionInfo {
        self.session.info()
    }
}

impl fmt::Debug for PortConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortConnection").field("session", &self.session).finish_non_exhaustive()
    }
}
