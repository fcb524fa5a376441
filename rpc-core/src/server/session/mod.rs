//! The server's driver of one connection: it joins the call table with a transport.
//!
//! A handler is polled once where its request arrived; only what is pending then becomes a task.

mod incoming;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::call::answer::Answer;
use super::call::record::{CallLines, CallRecord, Messages};
use super::call::reply::{Disposition, ReplySink, Responder};
use super::call::streams::CallStreams;
use super::router::Router;
use super::{HandlerFuture, PeerInfo, ServerConnection, ServerSetup};
use crate::call::refusal;
use crate::calls::receive_budget::ReceiveBudget;
use crate::calls::server::{Calls, Kept, Start};
use crate::connect::ConnectionInfo;
use crate::limits::log::LogLimit;
use crate::limits::memory::{MemoryCharge, MemoryShare};
use crate::limits::peer_key::PeerKey;
use crate::limits::shared::LimitShare;
use crate::payload::buffer::Buffers;
use crate::policy::keepalive::{PingLimiter, Traffic};
use crate::policy::lifetime::CallCounts;
use crate::policy::progress::Flows;
use crate::stream::SessionIo;
use crate::transport::frames::{self, Parts, Reserved};
use crate::transport::ping;
use crate::transport::{Addresses, CloseReason, Transport, TransportError};
use crate::wire::messages::BATCH_LEN_MAX;
use crate::wire::{FrameHeader, FrameKind, ProtocolError};
use crate::{Limits, Negotiated, limited_log};

/// From which length on a frame's memory is looked for before it is made: the length from which
/// TCP sends in pieces.
const CHECKED_LEN: usize = 64 << 10;

/// What an answer that waits holds beside its message: a task with the futures of the answer and
/// of its memory. 1,550 bytes were counted on x86-64. A client that reads nothing can have all its
/// calls wait, and with short answers this is most of what it makes the server keep.
const WAITING_LEN: u64 = 2 << 10;

/// The server's end of a connection over `T`.
pub(crate) struct ServerSession<T> {
    pub(super) transport: T,
    pub(super) router: Arc<Router>,
    /// What the client's address may have of the server's running calls.
    pub(super) calls: LimitShare<PeerKey>,
    /// What the connection may hold of the server's memory budget.
    pub(super) memory: MemoryShare,
    pub(super) limits: Limits,
    pub(super) peer_limits: Limits,
    pub(super) compression: Negotiated,
    /// By method id; empty where `compression` says it for all.
    pub(super) compress_from: Arc<[u32]>,
    pub(super) addresses: Addresses,
    /// What handlers can know of the connection.
    pub(super) peer: Arc<PeerInfo>,
    fallback: Option<String>,
    is_upgraded: bool,
    state: Mutex<State>,
    pub(super) idle: Notify,
    pub(super) closed: CancellationToken,
    /// How many lines the server's clients can write into the log.
    pub(super) log: LogLimit,
    pub(super) this: Weak<Self>,
}

pub(super) struct State {
    pub(super) calls: Calls<CallStreams, AbortHandle>,
    /// The large frames on their way, each with what it holds of the memory budget.
    pub(super) receive_budget: ReceiveBudget<MemoryCharge>,
    pub(super) draining: bool,
    pub(super) is_closed: bool,
    pub(super) started_count: u64,
    pub(super) ping_limiter: PingLimiter,
}

impl State {
    /// Whether a task that waits for the last call to end is to be woken.
    fn is_drained(&self) -> bool {
        self.draining && self.calls.is_idle()
    }
}

impl<T: Transport> ServerSession<T> {
    /// A session that receives nothing before it is started.
    pub(crate) fn new(transport: T, setup: ServerSetup) -> Arc<Self> {
        let mut peer = PeerInfo::new(transport.name(), setup.addresses.clone());
        peer.buffers = Buffers::of(transport.buffers().as_ref());
        transport.limit_large(setup.peer_limits.max_receiving_bytes);
        transport.charge_memory(&setup.memory);
        Arc::new_cyclic(|this| Self {
            transport,
            router: setup.router,
            calls: setup.calls,
            memory: setup.memory,
            limits: setup.limits,
            peer_limits: setup.peer_limits,
            compression: setup.compression,
            compress_from: setup.compress_from,
            addresses: setup.addresses,
            peer: Arc::new(peer),
            fallback: setup.fallback,
            is_upgraded: setup.is_upgraded,
            state: Mutex::new(State {
                calls: Calls::new(setup.limits.max_calls),
                receive_budget: ReceiveBudget::new(setup.limits.max_receiving_bytes),
                draining: false,
                is_closed: false,
                started_count: 0,
                ping_limiter: PingLimiter::new(Instant::now().into_std()),
            }),
            idle: Notify::new(),
            closed: CancellationToken::new(),
            log: setup.log,
            this: this.clone(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code between lock and unlock can leave the tables half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call that is not answered: the client is gone, or cannot be told.
    fn finish(&self, id: u64) {
        let ended = {
            let mut state = self.state();
            let ended = state.calls.finish(id);
            if state.is_drained() {
                self.idle.notify_waiters();
            }
            ended
        };
        if let Some(Kept { streams, .. }) = ended {
            streams.end_requests(refusal::answered);
        }
    }

    /// Sends the answer of a call that was not given up. The call is out of the table before its
    /// client can know the answer and make another; it counts as unsettled until the transport
    /// has the answer, so that draining does not close the link in between.
    fn send_answer(
        &self,
        id: u64,
        frame: Reserved<T>,
        answer: &Answer<'_>,
        record: &mut Option<CallRecord>,
    ) {
        let Some(Kept { streams, .. }) = self.state().calls.answer(id) else { return };
        let record = record.take().map(|record| (record, Messages::of(answer, &streams)));
        streams.end_requests(refusal::answered);
        // A connection that has ended meanwhile has no peer to tell.
        let _ = frame.send(&self.transport);
        let mut state = self.state();
        state.calls.answered();
        if state.is_drained() {
            self.idle.notify_waiters();
        }
        drop(state);
        // Behind the answer, which does not wait for a subscriber.
        if let Some((record, messages)) = record {
            record.log_answer(self.lines(), answer, messages);
        }
    }

    fn lines(&self) -> CallLines<'_> {
        CallLines { log: self.router.rules.log(), limit: &self.log, addresses: &self.addresses }
    }

    /// What the log is to say of the call of a request, if anything.
    pub(super) fn record(&self, header: &FrameHeader) -> Option<CallRecord> {
        CallRecord::begin(self.router.rules.log(), header, || {
            let (service, method) = self.router.route(header.selector)?;
            Some(&service.descriptor().methods[method])
        })
    }

    /// Polls a handler once in place, and makes a task of it when it is not done.
    pub(super) fn run(&self, id: u64, mut future: HandlerFuture) -> Poll<()> {
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return Poll::Ready(());
        }
        // The new task polls at once, so that nothing is lost by the waker that does nothing.
        let abort = tokio::spawn(future).abort_handle();
        let ended = self.state().calls.attach(id, abort);
        // Given back: the call was answered or given up before the handle was there. Aborting a
        // task that has ended does nothing.
        if let Some(abort) = ended {
            abort.abort();
        }
        Poll::Pending
    }

    pub(super) fn refuse(
        &self,
        this: Arc<Self>,
        header: &FrameHeader,
        status: Status,
    ) -> Result<(), ProtocolError> {
        let id = header.call;
        // The call counts as in flight until its refusal is sent, which bounds refusals too.
        let is_to_run = matches!(self.state().calls.start(id)?, Start::Run(_));
        if is_to_run {
            let responder = Responder::new(id, this, Disposition::Refused, self.record(header));
            let _ = self.run(id, Box::pin(responder.fail(status)));
        }
        Ok(())
    }

    /// Settles an answer for which there is no memory: one with a message becomes a status.
    fn settle_without_memory(
        &self,
        id: u64,
        answer: &Answer<'_>,
        error: TransportError,
        record: &mut Option<CallRecord>,
    ) {
        match error {
            TransportError::Closed { .. } => self.finish(id),
            error if answer.message.is_some() => {
                let status = Status::resource_exhausted(error.to_string());
                self.spawn_refusal(id, status, record.take());
            }
            error => {
                self.finish(id);
                let addresses = &self.addresses;
                limited_log!(
                    target: "farcall::server",
                    self.log, ERROR, "cannot answer a call", %addresses, %error
                );
                if let Some(record) = record.take() {
                    record.log_unanswered(self.lines(), Code::Unavailable, &error.to_string());
                }
            }
        }
    }

    /// Looks whether the memory budget has room for a frame that the transport may have to keep.
    /// Short ones pass unseen: what of them the network does not take at once is counted by the
    /// transport, and bounded there.
    fn check_memory(&self, parts: &Parts<'_>) -> Result<(), Status> {
        let len = parts.len();
        if len < CHECKED_LEN { Ok(()) } else { self.memory.check(len as u64) }
    }

    fn spawn_refusal(&self, id: u64, status: Status, record: Option<CallRecord>) {
        if let Some(this) = self.this.upgrade() {
            let responder = Responder::new(id, this, Disposition::Ended, record);
            tokio::spawn(responder.fail(status));
        }
    }
}

impl<T: Transport> SessionIo for ServerSession<T> {
    fn peer_limits(&self) -> &Limits {
        &self.peer_limits
    }

    fn compression(&self) -> Negotiated {
        self.compression
    }

    fn max_message_len(&self) -> u64 {
        self.limits.max_message_len
    }

    fn charge(&self, len: u64) -> Result<MemoryCharge, Status> {
        self.memory.try_take(len)
    }

    fn batch_len_max(&self) -> usize {
        self.transport.batch_len_max().min(BATCH_LEN_MAX)
    }

    fn try_send(&self, parts: &Parts<'_>) -> Result<bool, Status> {
        self.check_memory(parts)?;
        frames::try_send(&self.transport, parts).map_err(|error| refusal::unsendable(&error))
    }

    fn send<'a>(&'a self, parts: Parts<'a>) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let _waiting = self.memory.try_take(parts.len() as u64)?;
            let sent = frames::send(&self.transport, parts).await;
            sent.map_err(|error| refusal::unsendable(&error))
        })
    }

    fn send_control(&self, header: FrameHeader) {
        // A closed connection has no peer to tell.
        let _ = self.transport.send_control(header.to_bytes());
    }
}

impl<T: Transport> ReplySink for ServerSession<T> {
    fn io(self: Arc<Self>) -> Arc<dyn SessionIo> {
        self
    }

    fn try_reply(&self, id: u64, answer: &Answer<'_>, record: &mut Option<CallRecord>) -> bool {
        let parts = answer.parts(id);
        if let Err(status) = self.check_memory(&parts) {
            self.spawn_refusal(id, status, record.take());
            return true;
        }
        match frames::try_reserve(&self.transport, &parts) {
            Ok(None) => return false,
            Ok(Some(mut reserved)) => {
                reserved.write(&parts);
                self.send_answer(id, reserved, answer, record);
            }
            Err(error) => self.settle_without_memory(id, answer, error, record),
        }
        true
    }

    fn reply<'a>(
        &'a self,
        id: u64,
        answer: &'a Answer<'a>,
        record: &'a mut Option<CallRecord>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let parts = answer.parts(id);
            // The message is there, and stays for as long as the client likes to let it wait. A
            // status is short, and what is told when there is no room for more.
            let len = parts.len() as u64 + WAITING_LEN;
            let charged = match parts.message {
                Some(_) => self.memory.try_take(len),
                None => Ok(self.memory.take(len)),
            };
            let _waiting = match charged {
                Ok(charge) => charge,
                Err(status) => return self.spawn_refusal(id, status, record.take()),
            };
            match frames::reserve(&self.transport, &parts).await {
                Ok(mut reserved) => {
                    reserved.write(&parts);
                    self.send_answer(id, reserved, answer, record);
                }
                Err(error) => self.settle_without_memory(id, answer, error, record),
            }
        })
    }

    fn log_given_up(&self, record: CallRecord) {
        let words = match self.state().is_closed {
            true => "the connection ended before the call",
            false => "the client has given up the call",
        };
        record.log_unanswered(self.lines(), Code::Cancelled, words);
    }
}

impl<T: Transport> ServerConnection for ServerSession<T> {
    fn start(&self) {
        if let Some(this) = self.this.upgrade() {
            self.transport.start(this);
        }
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed.cancelled())
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let idle = self.idle.notified();
                {
                    let mut state = self.state();
                    state.draining = true;
                    if state.calls.is_idle() {
                        return;
                    }
                }
                idle.await;
            }
        })
    }

    fn go_away(&self) {
        // Behind the answers that were sent, and before every refusal of a later request: a client
        // that is refused first makes its call again on this very connection.
        self.send_control(FrameHeader::bare(FrameKind::GoAway, 0));
        self.state().draining = true;
    }

    fn ping(&self, number: u64) {
        ping::send(&self.transport, number);
    }

    fn traffic(&self) -> Traffic {
        ping::traffic(&self.transport)
    }

    fn has_unread(&self) -> bool {
        self.transport.has_unread()
    }

    fn flows(&self) -> Flows {
        self.transport.flows()
    }

    fn calls(&self) -> CallCounts {
        let state = self.state();
        CallCounts { started: state.started_count, in_flight: state.calls.in_flight_count() }
    }

    fn is_flushed(&self) -> bool {
        self.transport.is_flushed()
    }

    fn abort(&self, reason: CloseReason) {
        self.transport.abort(reason);
    }

    fn close(&self) {
        self.transport.close();
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

impl<T: fmt::Debug> fmt::Debug for ServerSession<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("ServerSession")
            .field("transport", &self.transport)
            .field("in_flight_count", &state.calls.in_flight_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod request_tests;

#[cfg(test)]
mod tests;
