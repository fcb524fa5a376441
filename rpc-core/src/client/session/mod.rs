//! The client's driver of one connection: it joins the call table with a transport.
//!
//! Requests are encoded and sent in the caller's task. What comes back is `incoming`'s business.

mod incoming;
mod keep_alive;
mod phase;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::keep_alive::{WatchRules, keep_alive};
use self::phase::{Draining, Phase};
use super::connection::{Answer, CallGuard, ReplySender};
use super::{ClientSetup, Connection, Outgoing, Started};
use crate::call::refusal;
use crate::calls::client::Calls;
use crate::calls::id_hashing::IdHashing;
use crate::calls::receive_budget::ReceiveBudget;
use crate::compression::{Deflated, is_due};
use crate::connect::ConnectionInfo;
use crate::payload::encode::Encode;
use crate::policy::keepalive::PingLimiter;
use crate::stream::{RecvStream, SendStream, SessionIo};
use crate::transport::frames::{self, Parts, Reserved};
use crate::transport::{Addresses, CloseReason, Handler, Transport, TransportError};
use crate::wire::messages::BATCH_LEN_MAX;
use crate::wire::{FrameHeader, FrameKind, metadata, method_kinds};
use crate::{BufferSource, CallKind, Idempotency, Limits, Negotiated};

/// The client's end of a connection over `T`.
pub(crate) struct Session<T> {
    pub(super) transport: T,
    pub(super) limits: Limits,
    peer_limits: Limits,
    pub(super) compression: Negotiated,
    method_ids: HashMap<String, u16, IdHashing>,
    /// What the server says of each method, by id.
    method_kinds: Bytes,
    pub(super) permits: Arc<Semaphore>,
    pub(super) addresses: Addresses,
    fallback: Option<String>,
    is_upgraded: bool,
    /// The server's address as the user wrote it.
    pub(super) server: Arc<str>,
    state: Mutex<State>,
    /// Set when the connection has ended.
    pub(super) ended: CancellationToken,
}

pub(super) struct State {
    pub(super) calls: Calls<InFlight>,
    pub(super) receive_budget: ReceiveBudget<()>,
    pub(super) phase: Phase,
    pub(super) ping_limiter: PingLimiter,
    pub(super) answered_count: u64,
}

impl State {
    /// Whether no more calls are started here, and the last has ended.
    pub(super) fn is_done(&self) -> bool {
        self.phase.draining().is_some() && self.calls.in_flight_count() == 0
    }
}

/// What the session keeps of a call in flight.
pub(super) struct InFlight {
    pub(super) route: Route,
    pub(super) send_stream: Option<Arc<SendStream>>,
}

/// Where a call's answer goes.
pub(super) enum Route {
    Reply(ReplySender),
    Stream(Arc<RecvStream>),
}

impl Route {
    /// Ends a call with a status. The caller may have gone at this very moment.
    pub(super) fn fail(self, status: Status) {
        match self {
            Self::Reply(sender) => drop(sender.send(Err(status))),
            Self::Stream(recv_stream) => recv_stream.fail(status),
        }
    }
}

/// A request whose parts are checked against the peer's limits.
struct Prepared {
    header: FrameHeader,
    block: Vec<u8>,
}

impl Prepared {
    fn parts<'a>(&'a self, call: &Outgoing<'a>) -> Parts<'a> {
        Parts { header: self.header, block: &self.block, message: call.message }
    }
}

impl<T: Transport> Session<T> {
    /// Starts the session and its transport.
    pub(crate) fn start(transport: T, setup: ClientSetup) -> Arc<Self> {
        let peer_limits = setup.peer.limits();
        let permit_count = (peer_limits.max_calls as usize).min(Semaphore::MAX_PERMITS);
        let methods = setup.peer.methods.into_iter().zip(0..=u16::MAX);
        transport.limit_large(peer_limits.max_receiving_bytes);
        let session = Arc::new(Self {
            transport,
            limits: setup.limits,
            peer_limits,
            compression: setup.compression,
            method_ids: methods.collect(),
            method_kinds: setup.peer.method_kinds,
            permits: Arc::new(Semaphore::new(permit_count)),
            addresses: setup.addresses,
            fallback: setup.fallback,
            is_upgraded: setup.is_upgraded,
            server: setup.server,
            state: Mutex::new(State {
                calls: Calls::default(),
                receive_budget: ReceiveBudget::new(setup.limits.max_receiving_bytes),
                phase: Phase::Open,
                ping_limiter: PingLimiter::new(Instant::now().into_std()),
                answered_count: 0,
            }),
            ended: CancellationToken::new(),
        });
        tracing::debug!(
            target: "farcall::path",
            transport = session.transport.name(), addresses = %session.addresses, "connected",
        );
        session.transport.start(Arc::clone(&session) as Arc<dyn Handler>);
        let rules =
            WatchRules { keepalive: setup.keepalive, progress_timeout: setup.progress_timeout };
        if rules.watch_anything() {
            let watch = keep_alive::<T, _>(Arc::downgrade(&session), rules);
            tokio::spawn(session.ended.clone().run_until_cancelled_owned(watch));
        }
        session
    }

    /// The id that the server has given a method.
    fn method_id(&self, path: &str) -> Result<u16, Status> {
        let id = self.method_ids.get(path).copied();
        id.ok_or_else(|| refusal::no_such_method(&self.server, path))
    }

    fn prepare(&self, call: &Outgoing<'_>) -> Result<Prepared, Status> {
        let selector = self.method_id(call.method.path)?;
        let mut block = Vec::new();
        metadata::encode(call.metadata, &mut block)
            .map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let message_len = call.message.map_or(0, Encode::len) as u64;
        refusal::check_message("request", message_len, "server's", &self.peer_limits)?;
        refusal::check_metadata("request", block.len(), "server's", &self.peer_limits)?;
        let mut header = FrameHeader::bare(FrameKind::Request, 0);
        header.is_streaming = call.message.is_none();
        header.selector = selector;
        Ok(Prepared { header, block })
    }

    /// Whether the call's message is compressed before it is sent.
    fn compresses(&self, call: &Outgoing<'_>) -> bool {
        let from = self.compression.from(call.limits.compress_from());
        call.message.is_some_and(|message| is_due(from, || message.len()))
    }

    /// Enters a call into the table.
    fn enter(self: &Arc<Self>, kind: CallKind) -> Result<Entered, Status> {
        let is_uploading = matches!(kind, CallKind::ClientStreaming | CallKind::Streaming);
        let send_stream =
            is_uploading.then(|| Arc::new(SendStream::new(self.peer_limits.window())));
        let (route, answer) = match kind {
            CallKind::Unary | CallKind::ClientStreaming => {
                let (sender, receiver) = oneshot::channel();
                (Route::Reply(sender), Answer::Reply(receiver))
            }
            CallKind::ServerStreaming | CallKind::Streaming => {
                let recv_stream = Arc::new(RecvStream::responses(self.limits.window()));
                (Route::Stream(Arc::clone(&recv_stream)), Answer::Stream(recv_stream))
            }
        };
        let mut state = self.state();
        if let Some(status) = state.phase.refusal(&self.server) {
            return Err(status);
        }
        let id = state.calls.start(InFlight { route, send_stream: send_stream.clone() });
        Ok(Entered { id, answer, send_stream })
    }

    /// Puts a prepared call into memory that is there for it, and sends it.
    fn launch(
        self: Arc<Self>,
        call: &Outgoing<'_>,
        mut prepared: Prepared,
        mut reserved: Reserved<T>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Started, Status> {
        // The clock is looked at only where a subscriber asks.
        let timed = call.deadline.map(|limit| (limit, Instant::now()));
        if let Some((limit, _)) = timed.filter(|(limit, now)| limit.deadline().has_passed(*now)) {
            return Err(limit.exceeded());
        }
        let Entered { id, answer, send_stream } = self.enter(call.method.kind)?;
        prepared.header.call = id;
        prepared.header.argument = timed.map_or(0, |(limit, now)| limit.deadline().to_wire(now));
        reserved.write(&prepared.parts(call));
        if let Err(error) = reserved.send(&self.transport) {
            drop(self.finish(id));
            return Err(self.unsendable(&error));
        }
        let guard = CallGuard::new(id, self.clone(), permit);
        Ok(Started { guard, answer, send_stream, io: self })
    }
}

/// A call that is in the table and not yet on its way.
struct Entered {
    id: u64,
    answer: Answer,
    send_stream: Option<Arc<SendStream>>,
}

impl<T> Session<T> {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code between lock and unlock can leave the tables half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed_status(&self) -> Status {
        let refusal = self.state().phase.refusal(&self.server);
        refusal.unwrap_or_else(|| refusal::lost(&self.server, &CloseReason::Local))
    }

    /// The status of a call that the transport does not take.
    fn unsendable(&self, error: &TransportError) -> Status {
        let TransportError::Closed { reason } = error else { return refusal::unsendable(error) };
        self.state().phase.cut(reason);
        refusal::lost(&self.server, reason)
    }
}

impl<T: Transport> Session<T> {
    /// Takes a call out of the table.
    pub(super) fn finish(&self, id: u64) -> Option<InFlight> {
        let (ended, is_done) = {
            let mut state = self.state();
            (state.calls.finish(id), state.is_done())
        };
        self.leave_if(is_done);
        ended
    }

    /// Tells transport and server that no caller waits for a call any more.
    fn give_up(&self, id: u64) {
        self.transport.abandon(id);
        // A connection that is closed needs no cancel.
        let _ = self.transport.send_control(FrameHeader::bare(FrameKind::Cancel, id).to_bytes());
    }

    /// Closes a connection whose work is done. It is this side that closes, because only this side
    /// knows of requests on their way.
    pub(super) fn leave_if(&self, is_done: bool) {
        if is_done {
            self.transport.close();
        }
    }
}

impl<T: Transport> Connection for Session<T> {
    fn try_start(self: Arc<Self>, call: Outgoing<'_>) -> Result<Option<Started>, Status> {
        if self.compresses(&call) {
            return Ok(None);
        }
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => return Ok(None),
            Err(TryAcquireError::Closed) => return Err(self.closed_status()),
        };
        let prepared = self.prepare(&call)?;
        match frames::try_reserve(&self.transport, &prepared.parts(&call)) {
            Ok(Some(reserved)) => self.launch(&call, prepared, reserved, permit).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(self.unsendable(&error)),
        }
    }

    fn start<'a>(self: Arc<Self>, call: Outgoing<'a>) -> BoxFuture<'a, Result<Started, Status>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let permit = permit.map_err(|_| self.closed_status())?;
            let (mut call, mut prepared) = (call, self.prepare(&call)?);
            let deflated = match call.message {
                Some(message) if self.compresses(&call) => Deflated::of(message).await,
                _ => None,
            };
            if let Some(deflated) = &deflated {
                call.message = Some(deflated);
                prepared.header.is_deflated = true;
            }
            let reserved = frames::reserve(&self.transport, &prepared.parts(&call)).await;
            let reserved = reserved.map_err(|error| self.unsendable(&error))?;
            self.launch(&call, prepared, reserved, permit)
        })
    }

    fn method(&self, path: &str) -> Result<(CallKind, Idempotency), Status> {
        let id = self.method_id(path)?;
        let byte = self.method_kinds.get(usize::from(id)).copied();
        byte.map(method_kinds::decode).ok_or_else(|| refusal::kind_unknown(&self.server, path))
    }

    fn cancel(&self, id: u64) {
        let (was_in_flight, is_done) = {
            let mut state = self.state();
            (state.calls.cancel(id), state.is_done())
        };
        if was_in_flight {
            self.give_up(id);
        }
        self.leave_if(is_done);
    }

    fn fail(&self, id: u64, status: Status) {
        let (ended, is_done) = {
            let mut state = self.state();
            (state.calls.finish(id), state.is_done())
        };
        if let Some(InFlight { route, .. }) = ended {
            self.give_up(id);
            route.fail(status);
        }
        self.leave_if(is_done);
    }

    fn is_open(&self) -> bool {
        self.state().phase.is_open()
    }

    fn closed(&self) -> Option<CloseReason> {
        self.state().phase.closed().cloned()
    }

    fn answered_count(&self) -> u64 {
        self.state().answered_count
    }

    fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn retire(&self) {
        let is_done = {
            let mut state = self.state();
            state.phase.drain(Draining::Replaced);
            state.is_done()
        };
        // Callers that wait for a permit start their calls on another connection.
        self.permits.close();
        self.leave_if(is_done);
    }

    fn close(&self) {
        self.transport.close();
    }

    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        self.transport.buffers()
    }

    fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            transport: self.transport.name(),
            addresses: self.addresses.clone(),
            is_upgraded: self.is_upgraded,
            fallback: self.fallback.clone(),
            compression: self.compression,
            calls_in_flight: self.state().calls.in_flight_count(),
            stats: self.transport.stats(),
        }
    }
}

impl<T: Transport> SessionIo for Session<T> {
    fn peer_limits(&self) -> &Limits {
        &self.peer_limits
    }

    fn compression(&self) -> Negotiated {
        self.compression
    }

    fn max_message_len(&self) -> u64 {
        self.limits.max_message_len
    }

    fn batch_len_max(&self) -> usize {
        self.transport.batch_len_max().min(BATCH_LEN_MAX)
    }

    fn try_send(&self, parts: &Parts<'_>) -> Result<bool, Status> {
        frames::try_send(&self.transport, parts).map_err(|error| self.unsendable(&error))
    }

    fn send<'a>(&'a self, parts: Parts<'a>) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let sent = frames::send(&self.transport, parts).await;
            sent.map_err(|error| self.unsendable(&error))
        })
    }

    fn send_control(&self, header: FrameHeader) {
        // A closed connection has no peer to tell.
        let _ = self.transport.send_control(header.to_bytes());
    }
}

impl<T> AsRef<T> for Session<T> {
    fn as_ref(&self) -> &T {
        &self.transport
    }
}

impl<T: fmt::Debug> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Session")
            .field("transport", &self.transport)
            .field("in_flight_count", &state.calls.in_flight_count())
            .field("phase", &state.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
