//! The server's driver of one connection: it joins the call table with a transport.
//!
//! A handler is polled once where its request arrived; only what is pending then becomes a task.
//!
//! The way of a request to its method is here as far as its header tells: the limits of its
//! connection, the method that it names, and whether its client may call that.

pub(crate) mod admission;
pub(in crate::server) mod in_flight;
mod incoming;

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::MutexGuard;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::in_flight::{CallsInFlight, State};
use super::call::record::CallRecord;
use super::call::reply::{Disposition, Responder};
use super::router::Router;
use super::{HandlerFuture, PeerInfo, ServerConnection, ServerSetup};
use crate::call::refusal;
use crate::calls::server::Start;
use crate::connect::ConnectionInfo;
use crate::limits::quota::PeerKey;
use crate::limits::shared::LimitShare;
use crate::payload::buffer::Buffers;
use crate::policy::keepalive::Traffic;
use crate::policy::lifetime::CallCounts;
use crate::policy::progress::Flows;
use crate::server::Service;
use crate::server::call::handling::NO_WAKER;
use crate::session::{Role, SessionCore, Settled};
use crate::transport::{CloseReason, Outbound, Transport};
use crate::wire::{FrameHeader, FrameKind, ProtocolError};
use crate::{CallKind, MethodDescriptor, limited_log};

/// The server's end of a connection.
pub(crate) struct ServerSession {
    /// Its calls, and their way to the transport.
    in_flight: Arc<CallsInFlight>,
    pub(super) router: Arc<Router>,
    /// Share of the client's address in the server's running calls.
    pub(super) calls: LimitShare<PeerKey>,
    /// By method id; empty where `compression` says it for all.
    pub(super) compress_from: Arc<[u32]>,
    /// Description of the connection for handlers.
    pub(super) peer: Arc<PeerInfo>,
    pub(super) closed: CancellationToken,
    pub(super) this: Weak<Self>,
}

impl ServerSession {
    /// A session that receives nothing before it is started.
    pub(crate) fn new(transport: Box<dyn Transport>, setup: ServerSetup) -> Arc<Self> {
        let mut peer = PeerInfo::new(transport.name(), setup.addresses.clone());
        // Taken here: the transport moves into the session, and handlers see the peer alone.
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
        let core = SessionCore::new(Role::Server, transport, settled, setup.memory);
        let rules = Arc::clone(&setup.router.rules);
        Arc::new_cyclic(|this| Self {
            in_flight: Arc::new(CallsInFlight::new(core, rules, setup.log)),
            router: setup.router,
            calls: setup.calls,
            compress_from: setup.compress_from,
            peer: Arc::new(peer),
            closed: CancellationToken::new(),
            this: this.clone(),
        })
    }

    fn core(&self) -> &SessionCore {
        &self.in_flight.core
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.in_flight.state()
    }

    /// Checks that the rules of the server allow the peer's call of `method`.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that they refuse.
    fn authorize(&self, method: &MethodDescriptor) -> Result<(), Status> {
        let Err(status) = self.router.authorization.check(&self.peer, method) else {
            return Ok(());
        };
        // Those for operators were checked when the call was routed.
        if self.router.is_for_operators(method) {
            return Ok(());
        }
        let addresses = &self.peer.addresses;
        limited_log!(
            target: "farcall::server",
            self.in_flight.log, INFO, "authorize refused a call",
            %addresses, method = method.path, error = status.message()
        );
        Err(status)
    }

    /// Returns the obligation to answer a call that no handler sees.
    pub(super) fn refusing(&self, header: &FrameHeader) -> Responder {
        let record = CallRecord::begin(self.router.rules.log(), header, || {
            let (service, method) = self.route_method(header)?;
            Some(&service.descriptor().methods[method])
        });
        let calls = Arc::clone(&self.in_flight);
        Responder::new(header.call, calls, Disposition::Refused, record)
    }

    /// Polls a handler once in place, and makes a task of it when it is not done.
    #[inline(always)]
    pub(super) fn run(&self, id: u64, mut future: HandlerFuture) -> Poll<()> {
        let mut context = Context::from_waker(NO_WAKER);
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

    pub(super) fn refuse(&self, header: &FrameHeader, status: Status) -> Result<(), ProtocolError> {
        let id = header.call;
        // The call counts as in flight until its refusal is sent, which bounds refusals too.
        // The lock is released with this statement: writing the refusal takes the call out of the
        // table, and would deadlock under it.
        let is_to_run = matches!(self.state().calls.start(id)?, Start::Run(_));
        if is_to_run {
            let _ = self.run(id, Box::pin(self.refusing(header).fail(status)));
        }
        Ok(())
    }
}

impl ServerConnection for ServerSession {
    fn start(&self) {
        if let Some(this) = self.this.upgrade() {
            self.core().transport.start(this);
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
                let idle = self.in_flight.idle.notified();
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
        self.core().send_control(FrameHeader::bare(FrameKind::GoAway, 0));
        self.state().drain();
    }

    fn ping(&self, number: u64) {
        self.core().ping(number);
    }

    fn traffic(&self) -> Traffic {
        self.core().traffic()
    }

    fn has_unread(&self) -> bool {
        self.core().transport.has_unread()
    }

    fn flows(&self) -> Flows {
        self.core().transport.flows()
    }

    fn outbound(&self) -> Outbound {
        self.core().transport.outbound()
    }

    fn calls(&self) -> CallCounts {
        let state = self.state();
        CallCounts { started: state.started_count, in_flight: state.calls.in_flight_count() }
    }

    fn is_flushed(&self) -> bool {
        self.core().transport.is_flushed()
    }

    fn abort(&self, reason: CloseReason) {
        self.core().transport.abort(reason);
    }

    fn close(&self) {
        self.core().transport.close();
    }

    fn info(&self) -> ConnectionInfo {
        let calls_in_flight = self.state().calls.in_flight_count();
        self.core().info(calls_in_flight)
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession").field("in_flight", &self.in_flight).finish_non_exhaustive()
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
    fn check_request(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        // The cheapest first: `authorize` is the program's own code.
        self.check_limits(header)?;
        self.calls.check(1)?;
        self.allowed_route(header)
    }

    /// Checks a request against the limits of its connection.
    #[inline(always)]
    fn check_limits(&self, header: &FrameHeader) -> Result<(), Status> {
        self.core().check(header)?;
        // A client that keeps too much already gets nothing new.
        self.core().memory.check(0)
    }

    /// Returns the method that a request names, if its client may call it.
    #[inline(always)]
    fn allowed_route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let route = self.route(header)?;
        // Asked here, which costs most servers no function call.
        if self.router.authorization.is_needed() {
            self.authorize(&route.service.descriptor().methods[route.method])?;
        }
        Ok(route)
    }

    /// Returns the method that a request names, if its client sees it.
    #[inline(always)]
    fn route_method(&self, header: &FrameHeader) -> Option<(&Arc<dyn Service>, usize)> {
        self.router.route_for(header.selector, &self.peer.addresses)
    }

    /// Returns the method that a request names, if it takes requests of that shape.
    #[inline(always)]
    fn route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let Some((service, method)) = self.route_method(header) else {
            let number = header.selector;
            let message = format!("the server's Hello has no method with the number {number}");
            return Err(Status::unimplemented(message));
        };
        let kind = service.descriptor().methods[method].kind;
        match (header.is_streaming, kind.has_request_stream()) {
            (true, false) => Err(refusal::other_kind(refusal::SENT_STREAM)),
            (false, true) => Err(refusal::other_kind(refusal::SENT_MESSAGE)),
            (true, true) | (false, false) => Ok(Route { service, method, kind }),
        }
    }
}

#[cfg(test)]
mod request_tests;

#[cfg(test)]
mod tests;
