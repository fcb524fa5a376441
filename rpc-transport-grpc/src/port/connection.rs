//! A gRPC client as a connection of the server: HTTP outside, the in-process session inside.

use std::convert::Infallible;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rpc_core::connect::{ConnectionInfo, Replayed};
use rpc_core::limits::log::LogLimit;
use rpc_core::policy::keepalive::Traffic;
use rpc_core::policy::lifetime::CallCounts;
use rpc_core::policy::progress::Flows;
use rpc_core::server::{Gateway, ServerConnection};
use rpc_core::transport::{Addresses, CloseReason};
use rpc_core::{Limits, limited_log};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::client_frames::ClientFrames;
use super::cross_origin::CrossOrigin;
use super::flow::Flowing;
use super::http2::{Http2, Http2Error, Leaving};
use super::linger::linger;
use super::noted_wakes::NotedWakes;
use super::pages::Pages;
use super::service::PortService;
use super::stream::CountedStream;
use crate::over::Early;

/// Maximum wait for the answer to the ping after a GOAWAY, or for an HTTP/1 request.
///
/// Calls in flight to the server arrive within a round trip. The last GOAWAY marks later ones as
/// not executed.
pub(super) const LEAVING_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which a leaving connection checks if its responses are finished.
const LEAVING_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes that a client sends before its first request: the rest of the preface, and the header of
/// its SETTINGS.
const OPENING_LEN: u64 = 24 + 9;

/// A connection to a gRPC client.
pub(super) struct PortConnection {
    http: Http,
    session: Arc<dyn ServerConnection>,
    flowing: Arc<Flowing>,
    /// The stream and everything to serve it with, until `start` takes them.
    waiting: Mutex<Option<(Replayed, Serving)>>,
    /// Cancelled to send the client away.
    going_away: CancellationToken,
    /// Cancelled to end the connection at once.
    stop: CancellationToken,
    /// Cancelled once HTTP has ended.
    ended: CancellationToken,
}

/// The HTTP version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http {
    One,
    Two,
}

/// Everything that serving HTTP needs.
struct Serving {
    http: Http,
    service: PortService,
    limits: Limits,
    opening_timeout: Duration,
    log: LogLimit,
    addresses: Addresses,
}

impl PortConnection {
    pub(super) fn new(
        gateway: Gateway,
        http: Http,
        cross_origin: &Arc<CrossOrigin>,
        pages: Option<Arc<dyn Pages>>,
    ) -> Arc<Self> {
        let Gateway {
            stream,
            channel,
            session,
            methods,
            admission,
            memory,
            log,
            limits,
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
            early: Early::new(admission, handshake_timeout),
            body_timeout: handshake_timeout,
            draining,
            cross_origin: Arc::clone(cross_origin),
            pages,
        };
        let (opening_timeout, addresses) = (handshake_timeout, stream.addresses());
        let serving = Serving { http, service, limits, opening_timeout, log, addresses };
        Arc::new(Self {
            http,
            session,
            flowing,
            waiting: Mutex::new(Some((stream, serving))),
            going_away: CancellationToken::new(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }
}

/// The signals that end a connection.
struct Ends {
    going_away: CancellationToken,
    stop: CancellationToken,
}

impl Serving {
    /// Serves HTTP until it ends, by itself or by one of the signals. Returns after the client has
    /// closed the stream.
    async fn serve(self, stream: Replayed, ends: Ends) {
        // HTTP/2 charges its own memory, which changes while it runs.
        let held = match self.http {
            Http::One => super::http1::held(&self.limits),
            Http::Two => 0,
        };
        let Ok(_held) = self.service.memory.try_take(held) else { return };
        let stop = ends.stop.clone();
        let (stream, left) = CountedStream::new(stream, Arc::clone(&self.service.flowing));
        let is_silent = match self.http {
            // Boxed: a connection over HTTP/2 must not reserve memory for HTTP/1's future.
            Http::One => Box::pin(self.serve_http1(stream, ends)).await,
            Http::Two => self.serve_http2(stream, ends).await,
        };
        // The stream returns here when HTTP drops it. It is closed gently, since closing a socket
        // with unread bytes resets it, and the client would lose the answer.
        let Ok(left) = left.await else { return };
        // Boxed for the same reason: an open connection does not linger.
        let lingering = Box::pin(linger(left, is_silent));
        tokio::select! {
            () = stop.cancelled() => {}
            () = lingering => {}
        }
    }

    /// Returns true if the client was sent away and did not answer.
    async fn serve_http1(self, stream: CountedStream, ends: Ends) -> bool {
        let Self { service, limits, opening_timeout, .. } = self;
        let flowing = Arc::clone(&service.flowing);
        let answer = service_fn(move |request| {
            // Counted here, before hyper first polls the future. Otherwise a connection that is
            // going away could look idle between the two.
            let (service, owed) = (service.clone(), service.flowing.owe());
            // Boxed, because hyper moves the request's future from task to task.
            async move {
                let _owed = owed;
                Ok::<_, Infallible>(service.answer(request).await)
            }
            .boxed()
        });
        let rules = super::http1::rules(&limits, opening_timeout);
        let connection = rules.serve_connection(TokioIo::new(stream), answer);
        let mut is_silent = false;
        let leave = |connection: Pin<&mut http1::Connection<_, _>>, leaving| {
            connection.graceful_shutdown();
            is_silent |= leaving == Leaving::Now;
            is_silent
        };
        // hyper enforces the time limit on the request head, so `late` never fires.
        if let Some(Err(error)) = drive(connection, pending(), ends, &flowing, leave).await {
            tracing::debug!(
                target: "farcall::server", %error, "an HTTP connection ended"
            );
        }
        is_silent
    }

    /// Returns true if the client was sent away and did not answer.
    async fn serve_http2(self, stream: CountedStream, ends: Ends) -> bool {
        let Self { service, limits, opening_timeout, log, addresses, .. } = self;
        let flowing = Arc::clone(&service.flowing);
        let stream = stream.with_frames(ClientFrames::new(addresses.peer.is_some()));
        let connection = Http2::new(stream, service, &limits, Arc::clone(&flowing));
        let late = async {
            // Judged by bytes, not by requests: a client may open a connection long before its
            // first call.
            sleep(opening_timeout).await;
            if flowing.read_bytes() >= OPENING_LEN {
                pending::<()>().await;
            }
        };
        let mut is_silent = false;
        let leave = |connection: Pin<&mut Http2>, leaving| {
            is_silent |= leaving == Leaving::Now;
            connection.leave(leaving)
        };
        if let Some(Err(error)) = drive(connection, late, ends, &flowing, leave).await {
            log_end(&log, &addresses, &flowing, &error);
        }
        is_silent
    }
}

/// Logs the reason why HTTP/2 has ended.
fn log_end(log: &LogLimit, addresses: &Addresses, flowing: &Flowing, error: &Http2Error) {
    // Only ends that the client caused are worth a warning. A lost socket is routine.
    if error.is_caused_by_peer() {
        let (name, limit) = flowing.limit().unzip();
        limited_log!(
            target: "farcall::server",
            log, WARN, "closed an HTTP/2 connection", %addresses, %error, name, limit
        );
    } else {
        tracing::debug!(
            target: "farcall::server", %addresses, %error, "an HTTP connection ended"
        );
    }
}

/// Drives a connection until it ends, until a signal stops it, or until the client is `late`.
///
/// On `going_away` it calls `leave`, which returns true if there is nothing left to drive. Returns
/// the connection's own result, if it ended by itself.
async fn drive<C: Future>(
    connection: C,
    late: impl Future<Output = ()>,
    ends: Ends,
    flowing: &Flowing,
    mut leave: impl FnMut(Pin<&mut C>, Leaving) -> bool,
) -> Option<C::Output> {
    let Ends { going_away, stop } = ends;
    let (mut connection, mut late) = (pin!(connection), pin!(late));
    let (mut is_leaving, wakes) = (false, NotedWakes::default());
    // Boxed: only a connection that is going away needs the timer.
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    loop {
        let impatient = async {
            match &mut patience {
                Some(patience) => patience.await,
                None => pending().await,
            }
        };
        tokio::select! {
            ended = poll_fn(|cx| wakes.poll(connection.as_mut(), cx)) => return Some(ended),
            () = stop.cancelled() => return None,
            () = &mut late => return None,
            () = going_away.cancelled(), if !is_leaving => {
                is_leaving = true;
                leave(connection.as_mut(), Leaving::WithLastCall);
                patience = Some(Box::pin(sleep(LEAVING_TIMEOUT)));
            }
            () = impatient => {
                // h2 would wait forever for a client that never answers the ping after its GOAWAY.
                // While responses are owed, the connection looks again after an interval.
                patience = Some(Box::pin(sleep(LEAVING_INTERVAL)));
                if flowing.is_idle() && leave(connection.as_mut(), Leaving::Now) {
                    return None;
                }
            }
        }
    }
}

impl ServerConnection for PortConnection {
    fn start(&self) {
        self.session.start();
        let waiting = self.waiting.lock().take();
        // A second `start` finds nothing to serve.
        let Some((stream, serving)) = waiting else { return };
        let ends = Ends { going_away: self.going_away.clone(), stop: self.stop.clone() };
        let served = serving.serve(stream, ends);
        let ended = self.ended.clone().drop_guard();
        tokio::spawn(async move {
            // The guard also fires if the runtime drops the task. `closed` would otherwise wait
            // forever.
            let _ended = ended;
            served.await;
        });
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        async {
            self.ended.cancelled().await;
            // The session ends only after HTTP: closing it first would fail calls whose responses
            // are being written.
            self.session.close();
            self.session.closed().await;
        }
        .boxed()
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        async {
            // HTTP/2 ends with its last call once the client was sent away. A session that drained
            // earlier would refuse calls that crossed the GOAWAY.
            self.ended.cancelled().await;
            self.session.drained().await;
        }
        .boxed()
    }

    fn go_away(&self) {
        self.going_away.cancel();
    }

    fn ping(&self, number: u64) {
        match self.http {
            // HTTP/1 has no pings, so the in-process session answers instead.
            Http::One => self.session.ping(number),
            Http::Two => self.flowing.ask_for_ping(),
        }
    }

    fn traffic(&self) -> Traffic {
        match self.http {
            Http::One => self.session.traffic(),
            Http::Two => self.flowing.traffic(),
        }
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

    fn network_bytes(&self) -> Option<(u64, u64)> {
        Some(self.flowing.bytes())
    }
}

impl fmt::Debug for PortConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortConnection").field("session", &self.session).finish_non_exhaustive()
    }
}
