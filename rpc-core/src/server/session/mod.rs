//! The server's driver of one connection: it joins the call table with a transport.
//!
//! A handler is polled once where its request arrived; only what is pending then becomes a task.
//!
//! The way of a request to its method is here as far as its header tells: the limits of its
//! connection, the method that it names, and whether its client may call that.

pub(crate) mod admission;
mod incoming;
mod response;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::call::record::{Answer, CallStreams};
use super::call::record::{CallLines, CallRecord};
use super::call::reply::{Disposition, Responder};
use super::router::Router;
use super::{HandlerFuture, PeerInfo, ServerConnection, ServerSetup};
use crate::call::refusal;
use crate::calls::receiving::ReceiveBudget;
use crate::calls::server::{Calls, Kept, Start};
use crate::connect::ConnectionInfo;
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryCharge;
use crate::limits::peer_key::PeerKey;
use crate::limits::shared::LimitShare;
use crate::payload::buffer::Buffers;
use crate::policy::keepalive::Traffic;
use crate::policy::lifetime::CallCounts;
use crate::policy::progress::Flows;
use crate::server::Service;
use crate::session::{Role, SessionCore, Settled};
use crate::stream::SessionIo;
use crate::transport::{CloseReason, Transport, TransportError};
use crate::wire::{FrameHeader, FrameKind, ProtocolError};
use crate::{CallKind, MethodDescriptor, limited_log};

/// The server's end of a connection.
pub(crate) struct ServerSession {
    pub(super) core: SessionCore,
    pub(super) router: Arc<Router>,
    /// Share of the client's address in the server's running calls.
    pub(super) calls: LimitShare<PeerKey>,
    /// By method id; empty where `compression` says it for all.
    pub(super) compress_from: Arc<[u32]>,
    /// Description of the connection for handlers.
    pub(super) peer: Arc<PeerInfo>,
    state: Mutex<State>,
    pub(super) idle: Notify,
    pub(super) closed: CancellationToken,
    /// Limit on the lines that the server's clients can cause in the log.
    pub(super) log: LogLimit,
    pub(super) this: Weak<Self>,
}

pub(super) struct State {
    pub(super) calls: Calls<CallStreams, AbortHandle>,
    /// The large frames on their way, each with what it holds of the memory budget.
    pub(super) receive_budget: ReceiveBudget<MemoryCharge>,
    pub(super) phase: Phase,
    pub(super) started_count: u64,
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// New calls are started.
    Open,
    /// New calls are refused; those in flight go on.
    Draining,
    /// The connection has ended.
    Closed,
}

impl State {
    /// Refuses new calls from now on.
    fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// Returns true if a task that waits for the last call to end must be woken.
    fn is_drained(&self) -> bool {
        self.phase != Phase::Open && self.calls.is_idle()
    }
}

impl ServerSession {
    /// A session that receives nothing before it is started.
    pub(crate) fn new(transport: Box<dyn Transport>, setup: ServerSetup) -> Arc<Self> {
        let mut peer = PeerInfo::new(transport.name(), setup.addresses.clone());
        peer.buffers = Buffers::of(transport.buffers().as_ref());
        transport.charge_memory(&setup.memory);
        let settled = Settled {
            limits: setup.limits,
            peer_limits: setup.peer_limits,
            compression: setup.compression,
            addresses: setup.addresses,
            fallback: setup.fallback,
            is_upgraded: setup.is_upgraded,
        };
        Arc::new_cyclic(|this| Self {
            core: SessionCore::new(Role::Server, transport, settled, setup.memory),
            router: setup.router,
            calls: setup.calls,
            compress_from: setup.compress_from,
            peer: Arc::new(peer),
            state: Mutex::new(State {
                calls: Calls::new(setup.limits.max_calls),
                receive_budget: ReceiveBudget::new(setup.limits.max_receiving_bytes),
                phase: Phase::Open,
                started_count: 0,
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

    fn lines(&self) -> CallLines<'_> {
        CallLines {
            log: self.router.rules.log(),
            limit: &self.log,
            addresses: &self.core.settled.addresses,
            transport: self.core.transport.name(),
        }
    }

    /// Checks that the rules of the server allow the peer's call of `method`.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that they refuse.
    fn authorize(&self, method: &MethodDescriptor) -> Result<(), Status> {
        let checked = self.router.authorization.check(&self.peer, method);
        checked.inspect_err(|status| {
            let addresses = &self.peer.addresses;
            limited_log!(
                target: "farcall::server",
                self.log, INFO, "authorize refused a call",
                %addresses, method = method.path, error = status.message()
            );
        })
    }

    /// Returns the log record of a request's call, if it has one.
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
        // The lock is released with this statement: writing the refusal takes the call out of the
        // table, and would deadlock under it.
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
                let addresses = &self.core.settled.addresses;
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

    fn spawn_refusal(&self, id: u64, status: Status, record: Option<CallRecord>) {
        if let Some(this) = self.this.upgrade() {
            // `Ended`, since a handler may have run: the client must not take the call for one that
            // was not executed.
            let responder = Responder::new(id, this, Disposition::Ended, record);
            tokio::spawn(responder.fail(status));
        }
    }
}

impl SessionIo for ServerSession {
    fn core(&self) -> &SessionCore {
        &self.core
    }

    fn unsendable(&self, error: &TransportError) -> Status {
        refusal::unsendable(error)
    }
}

impl ServerConnection for ServerSession {
    fn start(&self) {
        if let Some(this) = self.this.upgrade() {
            self.core.transport.start(this);
        }
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed.cancelled())
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                // `notify_waiters` reaches only futures that exist. Created after the check, this
                // one would miss a last call that ends in between.
                let idle = self.idle.notified();
                {
                    let mut state = self.state();
                    state.drain();
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
        self.core.send_control(FrameHeader::bare(FrameKind::GoAway, 0));
        self.state().drain();
    }

    fn ping(&self, number: u64) {
        self.core.ping(number);
    }

    fn traffic(&self) -> Traffic {
        self.core.traffic()
    }

    fn has_unread(&self) -> bool {
        self.core.transport.has_unread()
    }

    fn flows(&self) -> Flows {
        self.core.transport.flows()
    }

    fn calls(&self) -> CallCounts {
        let state = self.state();
        CallCounts { started: state.started_count, in_flight: state.calls.in_flight_count() }
    }

    fn is_flushed(&self) -> bool {
        self.core.transport.is_flushed()
    }

    fn abort(&self, reason: CloseReason) {
        self.core.transport.abort(reason);
    }

    fn close(&self) {
        self.core.transport.close();
    }

    fn info(&self) -> ConnectionInfo {
        let calls_in_flight = self.state().calls.in_flight_count();
        self.core.info(calls_in_flight)
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("ServerSession")
            .field("transport", &self.core.transport)
            .field("in_flight_count", &state.calls.in_flight_count())
            .finish_non_exhaustive()
    }
}

/// The method that serves a request.
struct Route<'a> {
    service: &'a Arc<dyn Service>,
    /// The method's index in its service.
    method: usize,
    kind: CallKind,
}

impl ServerSession {
    /// Checks a request that is announced. The session must not be locked, because a limit that is
    /// reached is logged.
    fn check_request(&self, header: &FrameHeader) -> Result<(), Status> {
        self.check_limits(header)?;
        self.calls.check(1)?;
        self.allowed_route(header).map(drop)
    }

    /// Checks a request against the limits of its connection.
    fn check_limits(&self, header: &FrameHeader) -> Result<(), Status> {
        self.core.check(header)?;
        // A client that keeps too much already gets nothing new.
        self.core.memory.check(0)
    }

    /// Returns the method that a request names, if its client may call it.
    fn allowed_route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let route = self.route(header)?;
        self.authorize(&route.service.descriptor().methods[route.method])?;
        Ok(route)
    }

    /// Returns the method that a request names, if it takes requests of that shape.
    fn route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let Some((service, method)) = self.router.route(header.selector) else {
            return Err(Status::unimplemented("no such method"));
        };
        let kind = service.descriptor().methods[method].kind;
        // The two sides have different editions of the `.proto`, which is this call's affair.
        match (header.is_streaming, kind.has_request_stream()) {
            (true, false) => {
                Err(Status::internal("the client sent a stream, but the method takes one message"))
            }
            (false, true) => {
                Err(Status::internal("the client sent one message, but the method takes a stream"))
            }
            (true, true) | (false, false) => Ok(Route { service, method, kind }),
        }
    }
}

#[cfg(test)]
mod request_tests;

#[cfg(test)]
mod tests;
