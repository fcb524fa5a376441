//! The common part of both roles' sessions: the client's `Session` and the server's `ServerSession`
//! each hold a [`SessionCore`].
//!
//! The table of calls and the meaning of frames differ, and stay with the roles.

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Status;

use crate::call::refusal;
use crate::calls::receiving::ReceiveBudget;
use crate::connect::{ConnectionInfo, Fallback};
use crate::limits::memory::MemoryShare;
use crate::metrics::connection_ended;
use crate::payload::block::out_of_block;
use crate::policy::keepalive::{PingLimiter, Traffic};
use crate::transport::frames::take_apart;
use crate::transport::{Addresses, Transport};
use crate::wire::messages::BATCH_LEN_MAX;
use crate::wire::{FrameHeader, FrameKind, ProtocolError};
use crate::{Limits, Negotiated};

/// From which length on a frame's memory is looked for before it is made: the length from which
/// TCP sends in pieces.
const CHECKED_LEN: usize = 64 << 10;

/// The end of a connection that a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Role {
    /// Its name among the labels of metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// Returns the noun for the messages it receives, for refusals.
    fn receives(self) -> &'static str {
        match self {
            Self::Client => "response",
            Self::Server => "request",
        }
    }

    /// Returns the owner of its limits, for refusals.
    fn whose(self) -> &'static str {
        match self {
            Self::Client => "client's",
            Self::Server => "server's",
        }
    }
}

/// The results of the handshake.
#[derive(Debug)]
pub(crate) struct Settled {
    /// Limits of this side.
    pub(crate) limits: Limits,
    /// Limits of the peer.
    pub(crate) peer_limits: Limits,
    /// Agreement on compressed messages.
    pub(crate) compression: Negotiated,
    /// The connection's two ends.
    pub(crate) addresses: Addresses,
    /// Why the connection did not move to an upgraded path.
    pub(crate) fallback: Option<Fallback>,
    /// True if the connection moved to an upgraded path.
    pub(crate) is_upgraded: bool,
}

/// The part of a session that is the same for both roles. It has no state of calls, and no lock
/// that is held while another is taken.
#[derive(Debug)]
pub(crate) struct SessionCore {
    role: Role,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) settled: Settled,
    /// Share of the server's memory budget. A client has none.
    pub(crate) memory: MemoryShare,
    ping_limiter: Mutex<PingLimiter>,
}

impl Drop for SessionCore {
    fn drop(&mut self) {
        // The counts are final only here: calls that outlive the connection still hold the session.
        let (side, transport) = (self.role.name(), &self.transport);
        connection_ended(side, transport.name(), transport.stats());
    }
}

impl SessionCore {
    /// For a transport that is not started yet.
    pub(crate) fn new(
        role: Role,
        transport: Box<dyn Transport>,
        settled: Settled,
        memory: MemoryShare,
    ) -> Self {
        // Before the transport is started: its first frame counts already.
        transport.limit_large(settled.peer_limits.max_receiving_bytes);
        let ping_limiter = Mutex::new(PingLimiter::new(Instant::now().into_std()));
        Self { role, transport, settled, memory, ping_limiter }
    }

    /// Checks what a frame's header says against this side's limits.
    #[inline(always)]
    pub(crate) fn check(&self, header: &FrameHeader) -> Result<(), Status> {
        let (what, whose) = (self.role.receives(), self.role.whose());
        refusal::check_incoming(what, header, whose, &self.settled.limits)
    }

    /// Takes a frame of a stream that has come apart into its block and its messages, each of which
    /// is checked against this side's limits. Short messages leave the memory of their frame.
    pub(crate) fn take_stream_apart(
        &self,
        header: &FrameHeader,
        frame: Bytes,
    ) -> Result<(Bytes, Bytes), Status> {
        self.check(header)?;
        let (block, messages) = take_apart(header, frame);
        let (what, whose) = (self.role.receives(), self.role.whose());
        refusal::check_messages(what, &messages, whose, &self.settled.limits)?;
        Ok((block, out_of_block(messages)))
    }

    /// Counts a large frame of `len` bytes that is announced, and keeps `value` until it has come.
    pub(crate) fn announce<T>(
        &self,
        budget: &mut ReceiveBudget<T>,
        header: &FrameHeader,
        len: u64,
        value: T,
    ) -> Result<(), Status> {
        budget.announce(header.frame_key(), len, value).map_err(|over| {
            refusal::over_budget(self.role.receives(), len, self.role.whose(), over)
        })
    }

    /// Looks whether the memory budget has room for a frame that the transport may have to keep.
    /// Short ones pass unseen: what of them the network does not take at once is counted by the
    /// transport, and bounded there.
    #[inline(always)]
    pub(crate) fn check_memory(&self, len: usize) -> Result<(), Status> {
        // Asked without taking: the transport counts what it keeps.
        if len < CHECKED_LEN { Ok(()) } else { self.memory.check(len as u64) }
    }

    /// Returns the maximum length of a frame that several messages share.
    pub(crate) fn batch_len_max(&self) -> usize {
        // The peer refuses a longer batch, even where the transport could carry it.
        self.transport.batch_len_max().min(BATCH_LEN_MAX)
    }

    /// Sends a frame that is a header alone.
    pub(crate) fn send_control(&self, header: FrameHeader) {
        // A closed connection has no peer to tell.
        let _ = self.transport.send_control(header.to_bytes());
    }

    /// Sends a ping.
    pub(crate) fn ping(&self, number: u64) {
        self.send_number(FrameKind::Ping, number);
    }

    /// Answers a ping of the peer's, unless an answer is still waiting to be sent. Nothing may be
    /// locked that the session's methods lock: what the transport lets go of while it sends may be
    /// the application's, whose destructor may ask for the connection.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the peer sends too many.
    pub(crate) fn handle_ping(&self, ping: &FrameHeader) -> Result<(), ProtocolError> {
        // Before the lock, under which no other lock is taken.
        let (now, traffic) = (Instant::now().into_std(), self.traffic());
        let is_answered = {
            let mut limiter = self.ping_limiter.lock();
            limiter.handle_ping(now, traffic)?
        };
        // The lock is free again: sending may drop memory of the application, which may call back.
        if is_answered {
            self.send_number(FrameKind::Pong, ping.argument);
        }
        Ok(())
    }

    fn send_number(&self, kind: FrameKind, number: u64) {
        let mut header = FrameHeader::bare(kind, 0);
        header.argument = number;
        self.send_control(header);
    }

    /// Returns the transport's counts that prove life.
    pub(crate) fn traffic(&self) -> Traffic {
        let stats = self.transport.stats();
        Traffic { sent_count: stats.sent_count, received_bytes: stats.received_bytes }
    }

    /// Returns the state of the connection.
    pub(crate) fn info(&self, calls_in_flight: usize) -> ConnectionInfo {
        ConnectionInfo {
            transport: self.transport.name(),
            addresses: self.settled.addresses.clone(),
            is_upgraded: self.settled.is_upgraded,
            wanted_upgrade: self.settled.is_upgraded || self.settled.fallback.is_some(),
            fallback: self.settled.fallback.as_ref().map(Fallback::describe),
            fallback_can_pass: self.settled.fallback.as_ref().is_some_and(|it| it.can_pass),
            is_without_device: self
                .settled
                .fallback
                .as_ref()
                .is_some_and(|it| it.is_without_device),
            accepts_compressed: self.settled.compression.is_accepted(),
            sends_compressed: self.settled.compression.is_sent(),
            calls_in_flight,
            path: self.transport.path(),
            stats: self.transport.stats(),
        }
    }
}
