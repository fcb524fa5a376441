//! HTTP/2 at the port, by h2: requests are counted as they come, and their bodies read.

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

/// What one stream may send that its call has not read, in bytes: HTTP/2's default.
const STREAM_WINDOW: u32 = 64 << 10;

/// The most that HTTP/2 allows for a window.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// What h2 may keep of the responses of one stream, in bytes. What is longer stays with the
/// response, where it counts.
const SEND_BUFFER_LEN: usize = 64 << 10;

/// The least room for the headers of a request, in bytes: gRPC's own take some hundred. Metadata
/// has the server's limit beside that.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// Calls that a client may have reset before this side saw them, beyond those that it let live, in
/// multiples of `max_calls`: the defence against *rapid reset* (CVE-2023-44487). A client that
/// gives up all its calls at once is below it.
const UNSEEN_RESETS_FACTOR: u32 = 4;

/// Streams that this side may reset for a client's mistakes before the connection is ended: h2's
/// default. A client that works makes none: streams whose calls have ended are left to it.
const MISTAKES_MAX: usize = 1024;

/// The rules of HTTP/2, most of which are there against peers that mean harm. Beside these h2
/// bounds CONTINUATION frames by the length of the headers that they may make, and answers a
/// SETTINGS or a PING before it reads the next one. It has no frames of data that wait, and no
/// requests but those of a turn, so that its limits on these are beyond what a turn has.
fn rules(limits: &Limits) -> Builder {
    let calls = limits.max_calls;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(calls)
        .max_header_list_size(header_list_max(limits))
        .initial_window_size(STREAM_WINDOW)
        // No stream that waits keeps the room of another one.
        .initial_connection_window_size(calls.saturating_mul(STREAM_WINDOW).min(WINDOW_MAX))
        .data_frame_budget(usize::MAX)
        .max_send_buffer_size(SEND_BUFFER_LEN)
        .max_pending_accept_reset_streams(usize::MAX)
        .max_local_error_reset_streams(Some(MISTAKES_MAX));
    builder
}

/// The longest headers of a request, in bytes as HTTP/2 counts them.
fn header_list_max(limits: &Limits) -> u32 {
    limits.max_metadata_len.saturating_add(HEADERS_LEN_MIN)
}

/// A connection of HTTP/2, as a future that ends with it.
pub(super) struct Http2 {
    state: Http2State,
    service: PortService,
    flowing: Arc<Flowing>,
    /// What the connection holds beside its calls.
    held: MemoryCharge,
    header_list_max: u32,
    /// Resets of calls that this side has not seen, at most.
    unseen_resets_max: u32,
    is_leaving: bool,
}

enum Http2State {
    /// In memory of its own, which an open connection need not hold.
    Opening(Box<Handshake<CountedStream, Piece>>),
    Open(Box<Open>),
}

struct Open {
    connection: Connection<CountedStream, Piece>,
    pings: Option<PingPong>,
    /// Bodies of which more may come.
    uploads: FuturesUnordered<Upload>,
    unseen_resets: u32,
    is_flooded: bool,
}

/// The two steps by which a connection goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It tells the client, and ends with the last call.
    WithLastCall,
    /// It has no calls, and the client has had its time.
    Now,
}

/// Why a connection of HTTP/2 has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Http2Error {
    /// As h2 says. Its text has the name of a limit that was reached.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// There is no memory for what it holds.
    #[error("{}", .0.message())]
    Memory(Status),
    /// The defence against rapid reset.
    #[error("more than {max} calls were reset before they were seen (rapid reset)")]
    RapidReset {
        /// The limit.
        max: u32,
    },
}

impl Http2Error {
    /// Returns true if this side has ended the connection, for what its client did.
    pub(super) fn is_of_peer(&self) -> bool {
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

    /// Tells the client to make its calls elsewhere, and ends with the last one. Without calls, it
    /// also ends for a client that does not answer. Returns true if the client has not begun.
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
            self.flowing.begin_turn();
            match quietly(|| Pin::new(&mut **handshake).poll(cx)) {
                Poll::Ready(connection) => {
                    let mut connection = connection?;
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
                // Calls that were admitted go on. A client that does not end its headers then is
                // among the first that give way.
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
        open.poll_pings(flowing, cx);
        loop {
            flowing.begin_turn();
            loop {
                match quietly(|| open.connection.poll_accept(cx)) {
                    Poll::Ready(Some(accepted)) => {
                        let (request, sending) = match accepted {
                            Ok(accepted) => accepted,
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
            while let Poll::Ready(Some(())) = open.uploads.poll_next_unpin(cx) {}
            if !flowing.is_turn_over() {
                return Poll::Pending;
            }
        }
    }
}

impl Open {
    /// Begins the call of a request that has come.
    fn accept(
        &mut self,
        request: http::Request<RecvStream>,
        mut sending: SendResponse<Piece>,
        service: &PortService,
        unseen_resets_max: u32,
        cx: &mut Context<'_>,
    ) {
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
                // Most requests are there as a whole. Others are polled with the connection.
                let mut once = Context::from_waker(Waker::noop());
                if upload.poll_read(&mut once).is_pending() {
                    self.uploads.push(upload);
                }
                let request = http::Request::from_parts(head, received);
                // From now on: the task may run later.
                let owed = service.flowing.owe();
                let service = service.clone();
                tokio::spawn(respond::respond(service, request, sending, charge, owed));
            }
            Err(status) => {
                drop(received);
                self.uploads.push(upload);
                service.log_refusal(head.uri.path(), &status);
                respond::refuse(&status, sending, memory.take(ENDED_HELD));
            }
        }
    }

    /// Sends the ping that was asked for, and takes the client's answer.
    fn poll_pings(&mut self, flowing: &Flowing, cx: &mut Context<'_>) {
        let is_due = flowing.take_ping(cx.waker());
        let Some(pings) = &mut self.pings else { return };
        if is_due {
            // Fails while the last one is on its way, or when the connection has ended.
            let _ = pings.send_ping(Ping::opaque());
        }
        // Only what comes in counts as life, and not that this does.
        let _ = pings.poll_pong(cx);
    }
}

/// Polls h2 with no subscriber: some of its lines are caused by each frame of a peer. The reason
/// for which a connection ends is in the server's own log.
fn quietly<T>(poll: impl FnOnce() -> T) -> T {
    with_default(&Dispatch::none(), poll)
}
