//! The server's driver of one connection: it joins the call table with a transport.
//!
//! A handler is polled once where its request arrived; only what is pending then becomes a task.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::reply::{Answer, Replies, Responder};
use super::router::Router;
use super::{HandlerFuture, ServerCall, ServerConnection, ServerSetup};
use crate::calls::receiving::Receiving;
use crate::calls::server::{Calls, Start};
use crate::connect::ConnectionInfo;
use crate::encode::Encode;
use crate::transport::{
    Addresses, Admission, CloseReason, Handler, Transport, TransportError, Withheld,
};
use crate::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};
use crate::{Deadline, Limits, refusal};

/// The server's end of a connection over `T`.
pub(crate) struct ServerSession<T> {
    transport: T,
    router: Arc<Router>,
    limits: Limits,
    peer_limits: Limits,
    addresses: Addresses,
    fallback: Option<String>,
    state: Mutex<State>,
    idle: Notify,
    closed: CancellationToken,
    this: Weak<Self>,
}

struct State {
    calls: Calls<AbortHandle>,
    receiving: Receiving,
    /// Answers that have left the table of calls and are not the transport's yet.
    answering_count: usize,
    draining: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.calls.in_flight_count() == 0 && self.answering_count == 0
    }
}

impl<T: Transport> ServerSession<T> {
    /// Starts the session and its transport.
    pub(crate) fn start(transport: T, setup: ServerSetup) -> Arc<Self> {
        let session = Arc::new_cyclic(|this| Self {
            transport,
            router: setup.router,
            limits: setup.limits,
            peer_limits: setup.peer_limits,
            addresses: setup.addresses,
            fallback: setup.fallback,
            state: Mutex::new(State {
                calls: Calls::new(setup.limits.calls_max),
                receiving: Receiving::new(setup.limits.receiving_bytes_max),
                answering_count: 0,
                draining: false,
            }),
            idle: Notify::new(),
            closed: CancellationToken::new(),
            this: this.clone(),
        });
        session.transport.start(Arc::clone(&session) as Arc<dyn Handler>);
        session
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code between lock and unlock can leave the tables half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the call out of the table because its answer is settled; false when it was given up.
    fn finish(&self, id: u64) -> bool {
        let mut state = self.state();
        let in_flight = state.calls.finish(id);
        if state.is_idle() {
            self.idle.notify_waiters();
        }
        in_flight
    }

    /// Sends the answer of a call that nobody gave up. The call is out of the table before its
    /// client can know the answer and make another; it counts as unsettled until the transport
    /// has the answer, so that draining does not close the link in between.
    fn send_answer(&self, id: u64, frame: T::Buffer) {
        {
            let mut state = self.state();
            if !state.calls.finish(id) {
                return;
            }
            state.answering_count += 1;
        }
        // A connection that has ended meanwhile has nobody to tell.
        let _ = self.transport.send(frame);
        let mut state = self.state();
        state.answering_count -= 1;
        if state.is_idle() {
            self.idle.notify_waiters();
        }
    }

    fn handle_request(
        &self,
        this: Arc<Self>,
        header: &FrameHeader,
        mut frame: Bytes,
    ) -> Result<(), ProtocolError> {
        let draining = {
            let mut state = self.state();
            state.receiving.arrived(header.call);
            if state.calls.start(header.call)? == Start::GivenUp {
                return Ok(());
            }
            state.draining
        };
        let message = frame.split_off(HEADER_LEN + header.metadata_len as usize);
        let call = ServerCall {
            metadata: frame.split_off(HEADER_LEN),
            message,
            deadline: Deadline::from_wire(Instant::now(), header.timeout_us),
            responder: Responder { id: header.call, replies: this },
        };
        let refusal = match refusal::check_incoming("request", header, "server's", &self.limits) {
            Ok(()) if draining => Err(Status::unavailable("the server is shutting down")),
            other => other,
        };
        let future = match (refusal, self.router.route(header.selector)) {
            (Err(status), _) => call.fail(status),
            (Ok(()), Some((service, method))) => service.call(method, call),
            (Ok(()), None) => call.unimplemented(),
        };
        self.run(header.call, future);
        Ok(())
    }

    /// Polls a handler once in place, and makes a task of it when it is not done.
    fn run(&self, id: u64, mut future: HandlerFuture) {
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
        // The new task polls at once, so that nothing is lost by the waker that does nothing.
        let abort = tokio::spawn(future).abort_handle();
        let ended = self.state().calls.attach(id, abort);
        // Given back: the call was answered or given up before the handle was there. Aborting a
        // task that has ended does nothing.
        if let Some(abort) = ended {
            abort.abort();
        }
    }

    fn refuse(&self, this: Arc<Self>, id: u64, status: Status) -> Result<(), ProtocolError> {
        // The call counts as in flight until its refusal is sent, which bounds refusals too.
        let start = self.state().calls.start(id)?;
        if start == Start::Run {
            let responder = Responder { id, replies: this };
            self.run(id, Box::pin(responder.fail(status)));
        }
        Ok(())
    }

    fn fill(&self, mut buffer: T::Buffer, id: u64, answer: &Answer<'_>) {
        let mut header = FrameHeader::bare(FrameKind::Response, id);
        header.selector = answer.code;
        // Both lengths were checked against the client's limits when the answer was made.
        header.metadata_len = u32::try_from(answer.block.len()).unwrap_or(u32::MAX);
        header.message_len = answer.message.map_or(0, Encode::len) as u64;
        let (head, message) = buffer.as_mut().split_at_mut(HEADER_LEN + answer.block.len());
        head[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        head[HEADER_LEN..].copy_from_slice(&answer.block);
        if let Some(answer) = answer.message {
            answer.encode_into(message);
        }
        self.send_answer(id, buffer);
    }

    /// Settles a reserved answer; what cannot be sent for want of memory becomes a status.
    fn settle(
        &self,
        id: u64,
        answer: &Answer<'_>,
        reserved: Result<T::Buffer, TransportError>,
    ) -> Option<Status> {
        match reserved {
            Ok(buffer) => self.fill(buffer, id, answer),
            Err(TransportError::Closed { .. }) => {
                self.finish(id);
            }
            Err(error) if answer.message.is_some() => {
                return Some(Status::resource_exhausted(error.to_string()));
            }
            Err(error) => {
                self.finish(id);
                tracing::error!(addresses = %self.addresses, %error, "cannot answer a call");
            }
        }
        None
    }

    fn spawn_refusal(&self, id: u64, status: Status) {
        if let Some(this) = self.this.upgrade() {
            let responder = Responder { id, replies: this };
            tokio::spawn(responder.fail(status));
        }
    }
}

fn frame_len(answer: &Answer<'_>) -> usize {
    HEADER_LEN + answer.block.len() + answer.message.map_or(0, Encode::len)
}

impl<T: Transport> Replies for ServerSession<T> {
    fn peer_limits(&self) -> &Limits {
        &self.peer_limits
    }

    fn try_reply(&self, id: u64, answer: &Answer<'_>) -> bool {
        let reserved = match self.transport.try_reserve(frame_len(answer)) {
            Ok(None) => return false,
            Ok(Some(buffer)) => Ok(buffer),
            Err(error) => Err(error),
        };
        if let Some(status) = self.settle(id, answer, reserved) {
            self.spawn_refusal(id, status);
        }
        true
    }

    fn reply<'a>(&'a self, id: u64, answer: &'a Answer<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let reserved = self.transport.reserve(frame_len(answer)).await;
            if let Some(status) = self.settle(id, answer, reserved) {
                self.spawn_refusal(id, status);
            }
        })
    }
}

impl<T: Transport> Handler for ServerSession<T> {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        header.check_len(len)?;
        if header.kind != FrameKind::Request {
            return Err(unexpected(header.kind));
        }
        let Some(this) = self.this.upgrade() else { return Ok(Admission::Refuse) };
        let deadline = Deadline::from_wire(Instant::now(), header.timeout_us);
        let refusal = match refusal::check_incoming("request", &header, "server's", &self.limits) {
            Err(status) => status,
            Ok(()) => {
                let mut state = self.state();
                // First, so that a call announced twice is a violation and not a want of room.
                state.calls.announce(header.call)?;
                match state.receiving.announce(header.call, len) {
                    Ok(()) => return Ok(Admission::Accept { deadline }),
                    Err(over) => refusal::over_budget("request", len, "server's", over),
                }
            }
        };
        self.refuse(this, header.call, refusal)?;
        Ok(Admission::Refuse)
    }

    fn handle_frame(&self, frame: Bytes) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse_whole(&frame)?;
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        match header.kind {
            FrameKind::Request => self.handle_request(this, &header, frame),
            FrameKind::Cancel => {
                let running = self.state().calls.cancel(header.call);
                if let Some(running) = running {
                    running.abort();
                }
                self.idle.notify_waiters();
                Ok(())
            }
            kind @ FrameKind::Response => Err(unexpected(kind)),
        }
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        self.state().receiving.arrived(header.call);
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        self.refuse(this, header.call, refusal::withheld(reason))
    }

    fn handle_closed(&self, reason: CloseReason) {
        let running = self.state().calls.close();
        for abort in running {
            abort.abort();
        }
        match &reason {
            CloseReason::Protocol(error) => {
                tracing::warn!(addresses = %self.addresses, %error, "closed a connection");
            }
            reason => tracing::debug!(addresses = %self.addresses, %reason, "connection closed"),
        }
        self.idle.notify_waiters();
        self.closed.cancel();
    }
}

fn unexpected(kind: FrameKind) -> ProtocolError {
    ProtocolError::UnexpectedFrame { kind, role: "client" }
}

impl<T: Transport> ServerConnection for ServerSession<T> {
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
                    if state.is_idle() {
                        return;
                    }
                }
                idle.await;
            }
        })
    }

    fn close(&self) {
        self.transport.close();
    }

    fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            transport: self.transport.name(),
            addresses: self.addresses.clone(),
            fallback: self.fallback.clone(),
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
#[path = "session_tests.rs"]
mod tests;
