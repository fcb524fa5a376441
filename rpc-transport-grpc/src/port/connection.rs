//! A client of gRPC, as a connection of the server: the session in the process, and HTTP before it.

use std::convert::Infallible;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
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
use super::service::PortService;
use super::stream::CountedStream;
use crate::over::Early;

/// Longest wait for the answer to the ping behind a GOAWAY, or for a request of HTTP/1. Calls on
/// their way come within a round trip. The last GOAWAY says of later ones that they were not
/// executed.
pub(super) const LEAVING_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between two looks whether the responses of a client that stays are over.
const LEAVING_INTERVAL: Duration = Duration::from_millis(100);

/// What a client has to send before its first request: the rest of the preface, and the header of
/// its SETTINGS.
const OPENING_LEN: u64 = 24 + 9;

/// A connection of a client of gRPC.
pub(super) struct PortConnection {
    http: Http,
    session: Arc<dyn ServerConnection>,
    flowing: Arc<Flowing>,
    /// What is served, until it is.
    waiting: Mutex<Option<(Replayed, Serving)>>,
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
    service: PortService,
    limits: Limits,
    opening_timeout: Duration,
    log: LogLimit,
    addresses: Addresses,
}

impl PortConnection {
    pub(super) fn new(gateway: Gateway, http: Http, cross_origin: &Arc<CrossOrigin>) -> Arc<Self> {
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

/// When a connection has to end.
struct Ends {
    going_away: CancellationToken,
    stop: CancellationToken,
}

impl Serving {
    /// Serves HTTP until it ends, by itself or because it has to, and until the client has closed
    /// the stream.
    async fn serve(self, stream: Replayed, ends: Ends) {
        // HTTP/2 counts what it holds itself, as that changes.
        let held = match self.http {
            Http::One => super::http1::held(&self.limits),
            Http::Two => 0,
        };
        let Ok(_held) = self.service.memory.try_take(held) else { return };
        let stop = ends.stop.clone();
        let (stream, left) = CountedStream::new(stream, Arc::clone(&self.service.flowing));
        let is_silent = match self.http {
            // In memory of its own, which a connection of HTTP/2 need not hold.
            Http::One => Box::pin(self.serve_http1(stream, ends)).await,
            Http::Two => self.serve_http2(stream, ends).await,
        };
        let Ok(left) = left.await else { return };
        // As above: an open connection need not hold it.
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
            let (service, owed) = (service.clone(), service.flowing.owe());
            // hyper moves the future of a request from task to task's memory.
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
        // hyper bounds the time of a request's head.
        if let Some(Err(error)) = drive(connection, pending(), ends, &flowing, leave).await {
            tracing::debug!(
                target: "farcall::server", %error, "a connection over HTTP has ended"
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

/// Logs why HTTP/2 has ended.
fn log_end(log: &LogLimit, addresses: &Addresses, flowing: &Flowing, error: &Http2Error) {
    if error.is_of_peer() {
        let (name, limit) = flowing.limit().unzip();
        limited_log!(
            target: "farcall::server",
            log, WARN, "closed a connection over HTTP/2", %addresses, %error, name, limit
        );
    } else {
        tracing::debug!(
            target: "farcall::server", %addresses, %error, "a connection over HTTP has ended"
        );
    }
}

/// Drives a connection until it ends, or has to: at once, or when the client is `late`. One that is
/// to go away is told to `leave`, which returns true if nothing is left to be driven. Gives what
/// the connection ended with, if it did so itself.
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
    // In memory of its own, which a connection holds only while it goes away.
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
                // A client that does not answer the ping of its GOAWAY would be waited for, calls
                // or not. With responses owed it is looked at again.
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
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((stream, serving)) = waiting else { return };
        let ends = Ends { going_away: self.going_away.clone(), stop: self.stop.clone() };
        let served = serving.serve(stream, ends);
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
        match self.http {
            // It has no pings. The session in the process answers instead.
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
}

impl fmt::Debug for PortConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortConnection").field("session", &self.session).finish_non_exhaustive()
    }
}
