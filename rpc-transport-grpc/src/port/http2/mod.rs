//! HTTP/2 at the port, served by h2. Counts requests as they arrive, and reads their bodies.

mod respond;
mod upload;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use rpc_core::Limits;
use rpc_core::memory::MemoryCharge;
use tonic::Status;
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use self::upload::Upload;
use super::flow::Flowing;
use super::held::{CALL_HELD, ENDED_HELD, connection_held, headers_held};
use super::piece::Piece;
use super::service::PortService;
use super::stream::CountedStream;

/// Bytes that a stream may send before its call reads them: HTTP/2's default.
const STREAM_WINDOW: u32 = 64 << 10;

/// Maximum window of HTTP/2 in bytes.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Bytes of a stream's responses that h2 may buffer. The rest stays with the response, where it
/// counts.
const SEND_BUFFER_LEN: usize = 64 << 10;

/// Minimum room for the headers of a request in bytes. gRPC's own headers take a few hundred. The
/// server's limit on metadata is added to this.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// Number of calls that a client may reset before this side sees them, beyond those that it let
/// live, in multiples of `max_calls`. This is the defense against *rapid reset* (CVE-2023-44487). A
/// client that cancels all its calls at once stays below it.
const UNSEEN_RESETS_FACTOR: u32 = 4;

/// Number of streams that this side may reset for a client's mistakes before it ends the
/// connection: h2's default. A correct client causes none: this side does not reset the stream of
/// an ended call.
const MISTAKES_MAX: usize = 1024;

/// Returns h2's settings. Most of them protect against hostile peers.
///
/// h2 itself bounds CONTINUATION frames by the length of the headers that they may carry, and
/// answers each SETTINGS or PING before it reads the next one. Its other limits stay out of reach
/// here: no DATA frame waits in h2, and it holds no requests but those of one turn.
fn rules(limits: &Limits) -> Builder {
    let calls = limits.max_calls;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(calls)
        .max_header_list_size(header_list_max(limits))
        .initial_window_size(STREAM_WINDOW)
        // The connection's window covers every stream's. A stream that stalls must not use up the
        // room of the others.
        .initial_connection_window_size(calls.saturating_mul(STREAM_WINDOW).min(WINDOW_MAX))
        .data_frame_budget(usize::MAX)
        .max_send_buffer_size(SEND_BUFFER_LEN)
        .max_pending_accept_reset_streams(usize::MAX)
        .max_local_error_reset_streams(Some(MISTAKES_MAX));
    builder
}

/// Returns the maximum length of a request's headers in bytes, as HTTP/2 counts them.
fn header_list_max(limits: &Limits) -> u32 {
    limits.max_metadata_len.saturating_add(HEADERS_LEN_MIN)
}

/// An HTTP/2 connection, as a future that resolves when it ends.
pub(super) struct Http2 {
    state: Http2State,
    service: PortService,
    flowing: Arc<Flowing>,
    /// Charge for the connection's memory beside its calls.
    held: MemoryCharge,
    header_list_max: u32,
    /// Maximum number of resets of calls that this side has not seen.
    unseen_resets_max: u32,
    is_leaving: bool,
}

enum Http2State {
    /// Boxed: an open connection must not reserve memory for the handshake.
    Opening(Box<Handshake<CountedStream, Piece>>),
    Open(Box<Open>),
}

struct Open {
    connection: Connection<CountedStream, Piece>,
    pings: Option<PingPong>,
    /// Request bodies that are incomplete.
    uploads: FuturesUnordered<Upload>,
    unseen_resets: u32,
    is_flooded: bool,
}

/// The two steps of sending a client away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Sends a GOAWAY. The connection ends with its last call.
    WithLastCall,
    /// Ends a connection without calls whose client has had its time.
    Now,
}

/// The reason for which an HTTP/2 connection has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Http2Error {
    /// h2's error. Its text names a limit that was reached.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// The server has no memory for the connection.
    #[error("{}", .0.message())]
    Memory(Status),
    /// The defense against rapid reset.
    #[error("the client reset more than {max} calls before the server saw them (rapid reset)")]
    RapidReset {
        /// The limit, in calls.
        max: u32,
    },
}

impl Http2Error {
    /// Returns true if this side ended the connection because of the client's behavior.
    pub(super) fn is_caused_by_peer(&self) -> bool {
        match self {
            Self::Http2(error) => error.is_go_away() && error.is_library(),
            Self::Memory(_) | Self::RapidReset { .. } => true,
        }
    }
}

impl Http2 {
    pub(super) fn new(
        stream: CountedStream,
        service: PortService,
        limits: &Limits,
        flowing: Arc<Flowing>,
    ) -> Self {
        let handshake = quietly(|| rules(limits).handshake(stream));
        let unseen_resets_max = limits.max_calls.saturating_mul(UNSEEN_RESETS_FACTOR);
        let state = Http2State::Opening(Box::new(handshake));
        let (held, header_list_max) = (service.memory.take(0), header_list_max(limits));
        let is_leaving = false;
        Self { state, service, flowing, held, header_list_max, unseen_resets_max, is_leaving }
    }

    /// Tells the client to make its calls elsewhere. The connection ends with its last call.
    ///
    /// With `Leaving::Now`, also ends a connection whose client does not answer. Returns true if
    /// the client has not completed the handshake.
    pub(super) fn leave(self: Pin<&mut Self>, leaving: Leaving) -> bool {
        let this = self.get_mut();
        this.is_leaving = true;
        match (&mut this.state, leaving) {
            (Http2State::Open(open), Leaving::WithLastCall) => {
                quietly(|| open.connection.graceful_shutdown());
                false
            }
            (Http2State::Open(open), Leaving::Now) => {
                quietly(|| open.connection.abrupt_shutdown(Reason::NO_ERROR));
                false
            }
            (Http2State::Opening(_), leaving) => leaving == Leaving::Now,
        }
    }

    fn poll_opening(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Http2Error>> {
        let Http2State::Opening(handshake) = &mut self.state else { return Poll::Ready(Ok(())) };
        loop {
            // h2 reads until the stream returns `Pending`, so the stream ends each turn itself. The
            // loop then starts the next one.
            self.flowing.begin_turn();
            match quietly(|| Pin::new(&mut **handshake).poll(cx)) {
                Poll::Ready(connection) => {
                    let mut connection = connection?;
                    // The server decided to leave during the handshake, when h2 could not yet send
                    // a GOAWAY.
                    if self.is_leaving {
                        connection.graceful_shutdown();
                    }
                    let (pings, uploads) = (connection.ping_pong(), FuturesUnordered::new());
                    let (unseen_resets, is_flooded) = (0, false);
                    let open = Open { connection, pings, uploads, unseen_resets, is_flooded };
                    self.state = Http2State::Open(Box::new(open));
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending if self.flowing.is_turn_over() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Future for Http2 {
    type Output = Result<(), Http2Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = this.poll_connection(cx);
        if polled.is_pending() {
            let held = connection_held(this.flowing.unfinished(), this.header_list_max);
            match this.held.try_set(held) {
                Ok(()) => {}
                // Admitted calls go on, so their connection must not end for its own memory. If the
                // server then runs out, a client with an unfinished header block is among the first
                // to be closed.
                Err(_) if this.flowing.has_calls() => this.held.set(held),
                Err(status) => return Poll::Ready(Err(Http2Error::Memory(status))),
            }
        }
        polled
    }
}

impl Http2 {
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Http2Error>> {
        if self.poll_opening(cx)?.is_pending() {
            return Poll::Pending;
        }
        let Self { state, service, flowing, unseen_resets_max, .. } = self;
        let Http2State::Open(open) = state else { return Poll::Pending };
        // Registers the waker for pings before anything can return.
        open.poll_pings(flowing, cx);
        loop {
            flowing.begin_turn();
            loop {
                match quietly(|| open.connection.poll_accept(cx)) {
                    Poll::Ready(Some(accepted)) => {
                        let (request, sending) = match accepted {
                            Ok(accepted) => accepted,
                            // h2 reports its own error after an abrupt shutdown. The client's
                            // flood explains more.
                            Err(_) if open.is_flooded => {
                                let max = *unseen_resets_max;
                                return Poll::Ready(Err(Http2Error::RapidReset { max }));
                            }
                            Err(error) => return Poll::Ready(Err(error.into())),
                        };
                        open.accept(request, sending, service, *unseen_resets_max, cx);
                    }
                    Poll::Ready(None) if open.is_flooded => {
                        let max = *unseen_resets_max;
                        return Poll::Ready(Err(Http2Error::RapidReset { max }));
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => break,
                }
            }
            // Bodies are read in the same turn as the headers. A turn that only accepted calls
            // would let unread frames pile up in h2.
            while let Poll::Ready(Some(())) = open.uploads.poll_next_unpin(cx) {}
            // The turn is not used up, so h2 has seen the socket's `Pending`, and a wake-up is
            // registered. After a full turn there is none: the loop must go on.
            if !flowing.is_turn_over() {
                return Poll::Pending;
            }
        }
    }
}

impl Open {
    /// Starts the call of a request.
    fn accept(
        &mut self,
        request: http::Request<RecvStream>,
        mut sending: SendResponse<Piece>,
        service: &PortService,
        unseen_resets_max: u32,
        cx: &mut Context<'_>,
    ) {
        // Already reset: h2 hands out such requests too. Without the count, a client could open and
        // reset streams faster than any limit on open calls notices.
        if sending.poll_reset(cx).is_ready() {
            self.unseen_resets += 1;
            if self.unseen_resets > unseen_resets_max && !self.is_flooded {
                self.is_flooded = true;
                self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            }
            return;
        }
        self.unseen_resets = self.unseen_resets.saturating_sub(1);
        let memory = &service.memory;
        let path_len = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
        let held = CALL_HELD + headers_held(request.headers()) + path_len as u64;
        let admitted = memory.try_take(held);
        let (head, stream) = request.into_parts();
        let (mut upload, received) = upload::pair(stream, memory.clone());
        match admitted {
            Ok(charge) => {
                // Most requests arrive whole and are read at once. The rest is polled with the
                // connection.
                let mut once = Context::from_waker(Waker::noop());
                if upload.poll_read(&mut once).is_pending() {
                    self.uploads.push(upload);
                }
                let request = http::Request::from_parts(head, received);
                // Counted before the task starts, which may be later. The connection would look
                // idle in between.
                let owed = service.flowing.owe();
                let service = service.clone();
                tokio::spawn(respond::respond(service, request, sending, charge, owed));
            }
            Err(status) => {
                // Without its call's side, the upload discards the body until the client ends the
                // stream.
                drop(received);
                self.uploads.push(upload);
                service.log_refusal(head.uri.path(), &status);
                respond::refuse(&status, sending, memory.take(ENDED_HELD));
            }
        }
    }

    /// Sends a requested ping, and takes the client's answer to the last one.
    fn poll_pings(&mut self, flowing: &Flowing, cx: &mut Context<'_>) {
        let is_due = flowing.take_ping(cx.waker());
        let Some(pings) = &mut self.pings else { return };
        if is_due {
            // Fails if a ping is still in flight or the connection has ended. Neither needs another
            // ping.
            let _ = pings.send_ping(Ping::opaque());
        }
        // The received bytes are the proof of life. The answer itself is not needed.
        let _ = pings.poll_pong(cx);
    }
}

/// Polls h2 without a subscriber: a peer could trigger some of its log lines with every frame. The
/// server's own log has the reason for which a connection ends.
fn quietly<T>(poll: impl FnOnce() -> T) -> T {
    with_default(&Dispatch::none(), poll)
}
