//! The client's driver of one connection: it joins the call table with a transport.
//!
//! Requests are encoded and sent in the caller's task. Responses are handed to the caller from
//! the transport's task, so that one wake-up separates the device from the caller.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::pending::ReplySender;
use super::{ClientSetup, Connection, Outgoing, PendingReply, Reply};
use crate::Limits;
use crate::calls::client::Calls;
use crate::calls::receiving::Receiving;
use crate::connect::ConnectionInfo;
use crate::refusal;
use crate::transport::{
    Addresses, Admission, CloseReason, Handler, Transport, TransportError, Withheld,
};
use crate::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError, metadata};

/// The client's end of a connection over `T`.
pub(crate) struct Session<T> {
    transport: T,
    limits: Limits,
    peer_limits: Limits,
    method_ids: HashMap<String, u16>,
    permits: Arc<Semaphore>,
    addresses: Addresses,
    fallback: Option<String>,
    state: Mutex<State>,
}

struct State {
    calls: Calls<ReplySender>,
    receiving: Receiving,
    closed: Option<CloseReason>,
}

/// A frame whose parts are known and checked against the peer's limits.
struct Prepared {
    header: FrameHeader,
    block: Vec<u8>,
    frame_len: usize,
}

impl<T: Transport> Session<T> {
    /// Starts the session and its transport.
    pub(crate) fn start(transport: T, setup: ClientSetup) -> Arc<Self> {
        let peer_limits = setup.peer.limits();
        let permit_count = (peer_limits.calls_max as usize).min(Semaphore::MAX_PERMITS);
        let methods = setup.peer.methods.into_iter().zip(0..=u16::MAX);
        let session = Arc::new(Self {
            transport,
            limits: setup.limits,
            peer_limits,
            method_ids: methods.collect(),
            permits: Arc::new(Semaphore::new(permit_count)),
            addresses: setup.addresses,
            fallback: setup.fallback,
            state: Mutex::new(State {
                calls: Calls::default(),
                receiving: Receiving::new(setup.limits.receiving_bytes_max),
                closed: None,
            }),
        });
        match &session.fallback {
            Some(reason) => tracing::warn!(
                transport = session.transport.name(), addresses = %session.addresses, %reason,
                "connected without the better path",
            ),
            None => tracing::debug!(
                transport = session.transport.name(), addresses = %session.addresses, "connected",
            ),
        }
        session.transport.start(Arc::clone(&session) as Arc<dyn Handler>);
        session
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code between lock and unlock can leave the tables half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, call: &Outgoing<'_>) -> Result<Prepared, Status> {
        let path = call.method.path;
        let selector = *self
            .method_ids
            .get(path)
            .ok_or_else(|| Status::unimplemented(format!("the server has no method {path}")))?;
        let mut block = Vec::new();
        metadata::encode(call.metadata, &mut block)
            .map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let message_len = call.message.len() as u64;
        refusal::check_message("request", message_len, "server's", &self.peer_limits)?;
        let metadata_len =
            refusal::check_metadata("request", block.len(), "server's", &self.peer_limits)?;
        let mut header = FrameHeader::bare(FrameKind::Request, 0);
        header.selector = selector;
        header.metadata_len = metadata_len;
        header.message_len = message_len;
        let frame_len = HEADER_LEN + block.len() + call.message.len();
        Ok(Prepared { header, block, frame_len })
    }

    /// Puts a prepared call into memory that is there for it, and sends it.
    fn launch(
        self: Arc<Self>,
        call: &Outgoing<'_>,
        mut prepared: Prepared,
        mut buffer: T::Buffer,
        permit: OwnedSemaphorePermit,
    ) -> Result<PendingReply, Status> {
        let now = Instant::now();
        if call.deadline.is_some_and(|deadline| deadline.has_passed(now)) {
            return Err(refusal::deadline_exceeded());
        }
        let frame = buffer.as_mut();
        let (head, message) = frame.split_at_mut(HEADER_LEN + prepared.block.len());
        head[HEADER_LEN..].copy_from_slice(&prepared.block);
        call.message.encode_into(message);
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = self.state();
            if let Some(reason) = &state.closed {
                return Err(refusal::closed(reason));
            }
            state.calls.start(sender)
        };
        prepared.header.call = id;
        prepared.header.timeout_us = call.deadline.map_or(0, |deadline| deadline.to_wire(now));
        head[..HEADER_LEN].copy_from_slice(&prepared.header.to_bytes());
        let sent = self.transport.send(buffer);
        let pending = PendingReply::new(receiver, id, self.clone(), permit);
        match sent {
            Ok(()) => Ok(pending),
            Err(error) => {
                self.state().calls.finish(id);
                Err(unsendable(&error))
            }
        }
    }
}

impl<T: Transport> Connection for Session<T> {
    fn try_start(self: Arc<Self>, call: Outgoing<'_>) -> Result<Option<PendingReply>, Status> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => return Ok(None),
            Err(TryAcquireError::Closed) => return Err(self.closed_status()),
        };
        let prepared = self.prepare(&call)?;
        match self.transport.try_reserve(prepared.frame_len) {
            Ok(Some(buffer)) => self.launch(&call, prepared, buffer, permit).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(unsendable(&error)),
        }
    }

    fn start<'a>(
        self: Arc<Self>,
        call: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<PendingReply, Status>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let permit = permit.map_err(|_| self.closed_status())?;
            let prepared = self.prepare(&call)?;
            let reserved = self.transport.reserve(prepared.frame_len).await;
            let buffer = reserved.map_err(|error| unsendable(&error))?;
            self.launch(&call, prepared, buffer, permit)
        })
    }

    fn cancel(&self, id: u64) {
        let was_in_flight = self.state().calls.cancel(id);
        if was_in_flight {
            let header = FrameHeader::bare(FrameKind::Cancel, id).to_bytes();
            // A connection that is closed needs no cancel.
            let _ = self.transport.send_control(header);
        }
    }

    fn is_closed(&self) -> bool {
        self.state().closed.is_some()
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

impl<T> Session<T> {
    fn closed_status(&self) -> Status {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        refusal::closed(state.closed.as_ref().unwrap_or(&CloseReason::Local))
    }
}

impl<T: Transport> Handler for Session<T> {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        header.check_len(len)?;
        expect_response(&header)?;
        let mut state = self.state();
        if !state.calls.contains(header.call) {
            return Ok(Admission::Refuse);
        }
        let refusal = match refusal::check_incoming("response", &header, "client's", &self.limits) {
            Err(status) => status,
            Ok(()) => match state.receiving.announce(header.call, len) {
                Ok(()) => return Ok(Admission::Accept { deadline: None }),
                Err(over) => refusal::over_budget("response", len, "client's", over),
            },
        };
        let sender = state.calls.finish(header.call);
        drop(state);
        answer(sender, Err(refusal));
        Ok(Admission::Refuse)
    }

    fn handle_frame(&self, mut frame: Bytes) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse_whole(&frame)?;
        expect_response(&header)?;
        let sender = {
            let mut state = self.state();
            state.receiving.arrived(header.call);
            state.calls.finish(header.call)
        };
        // The call may have been given up: then its response is dropped here.
        let Some(sender) = sender else { return Ok(()) };
        let reply = match refusal::check_incoming("response", &header, "client's", &self.limits) {
            Err(status) => Err(status),
            Ok(()) => {
                let message = frame.split_off(HEADER_LEN + header.metadata_len as usize);
                let block = frame.split_off(HEADER_LEN);
                Ok(Reply { code: header.selector, block, message })
            }
        };
        answer(Some(sender), reply);
        Ok(())
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        let mut state = self.state();
        state.receiving.arrived(header.call);
        let sender = state.calls.finish(header.call);
        drop(state);
        answer(sender, Err(refusal::withheld(reason)));
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        tracing::debug!(
            transport = self.transport.name(), addresses = %self.addresses, %reason, "closed",
        );
        let senders = {
            let mut state = self.state();
            state.closed = Some(reason.clone());
            state.calls.close()
        };
        self.permits.close();
        for sender in senders {
            answer(Some(sender), Err(refusal::closed(&reason)));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Session")
            .field("transport", &self.transport)
            .field("in_flight_count", &state.calls.in_flight_count())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

fn expect_response(header: &FrameHeader) -> Result<(), ProtocolError> {
    match header.kind {
        FrameKind::Response => Ok(()),
        kind => Err(ProtocolError::UnexpectedFrame { kind, role: "server" }),
    }
}

/// Hands a reply to its caller, who may have gone at this very moment.
fn answer(sender: Option<ReplySender>, reply: Result<Reply, Status>) {
    if let Some(sender) = sender {
        let _ = sender.send(reply);
    }
}

fn unsendable(error: &TransportError) -> Status {
    match error {
        TransportError::Closed { reason } => refusal::closed(reason),
        other => Status::new(Code::ResourceExhausted, other.to_string()),
    }
}
