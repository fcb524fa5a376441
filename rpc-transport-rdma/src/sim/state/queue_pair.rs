//! The state of a simulated queue pair.
//!
//! ```text
//!           connect            a request failed, the peer's was refused,
//! Initial ----------> Ready ------------------------------------------> Error
//!    |                       or it was told to                            ^
//!    '--------------------------------------------------------------------'
//! ```
//! A request is *posted* until its completion was polled; until then it takes a place in the
//! queue and its memory is the device's. It is *issued* when it has left for the peer.

use std::collections::VecDeque;

use super::lag_port::LagPortId;
use super::numbers::Nanos;
use crate::sim::state::memory::SpanId;
use crate::sim::state::queues::{LateWrite, Posted};
use crate::sys::provider::{PathAttributes, RawCompletion, RawOperation, RawSegment};

#[derive(Debug)]
pub(crate) struct QueuePairState {
    pub(crate) number: u32,
    pub(crate) device: usize,
    pub(crate) context: u32,
    pub(crate) completion_queue: u32,
    pub(crate) receive_queue: u32,
    pub(crate) depth: u32,
    pub(crate) inline_max: u32,
    /// The LAG port by which its packets leave.
    pub(crate) lag_port: LagPortId,
    /// Time at which all bytes that were given to it have left at its own rate.
    pub(crate) free_at: Nanos,
    /// Bytes of locked memory.
    pub(crate) locked: u64,
    pub(crate) phase: Phase,
    /// Requests that have not completed, in order.
    pub(crate) requests: VecDeque<Request>,
    /// Number of them, from the front, that have been issued.
    pub(crate) issued: usize,
    /// Requests that have succeeded since the last completion, without one of their own.
    pub(crate) silent: usize,
    /// Bytes that are written when the completion of those, or of the next, is polled.
    pub(crate) writes: Vec<LateWrite>,
    /// Memory of everything posted.
    pub(crate) spans: VecDeque<Option<SpanId>>,
    pub(crate) wire: Wire,
    /// Receives that it has begun to fill, and how they complete when it dies.
    pub(crate) held: Vec<HeldReceive>,
    /// The sequence number of the peer's next request.
    pub(crate) expected: u32,
    /// Nothing is heard of it any more.
    pub(crate) is_silent: bool,
}

/// A receive that a queue pair was filling when it died.
#[derive(Debug)]
pub(crate) struct HeldReceive {
    pub(crate) posted: Posted,
    /// Its completion, if it ever comes.
    pub(crate) raw: RawCompletion,
    pub(crate) is_lost: bool,
}

#[derive(Debug)]
pub(crate) enum Phase {
    Initial,
    Ready(Box<PathAttributes>),
    Error,
}

/// The state of a queue pair's exchange with the peer.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) next_sequence: u32,
    pub(crate) attempt: u32,
    /// True while it waits for a receiver that was not ready.
    pub(crate) is_paused: bool,
    pub(crate) has_timer: bool,
    pub(crate) last_progress: Nanos,
    /// Until then bytes of its requests and of their answers are leaving. Packets of them keep
    /// arriving, so that it takes nothing for lost.
    pub(crate) moving_until: Nanos,
    /// Requests and answers do not overtake each other.
    pub(crate) last_arrival: Nanos,
    pub(crate) last_answer: Nanos,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
}

/// A request that was posted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work_id: u64,
    pub(crate) operation: RawOperation,
    pub(crate) segment: Option<RawSegment>,
    pub(crate) is_signaled: bool,
    pub(crate) is_inline: bool,
    /// Bytes of a message at the time of its post.
    pub(crate) posted: Option<Box<[u8]>>,
    /// Its number on the wire, once it has been issued.
    pub(crate) sequence: Option<u32>,
    pub(crate) outcome: Option<Result<(), u32>>,
}

impl Wire {
    /// Notes that bytes leave until a time, if they take any.
    pub(crate) fn keep_moving(&mut self, now: Nanos, until: Nanos) {
        if until > now {
            self.moving_until = self.moving_until.max(until);
        }
    }
}

impl QueuePairState {
    pub(crate) fn path(&self) -> Option<&PathAttributes> {
        match &self.phase {
            Phase::Ready(path) => Some(path),
            Phase::Initial | Phase::Error => None,
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.phase, Phase::Error)
    }

    /// Issued requests that the peer has not answered.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Request> {
        let issued = self.requests.iter().take(self.issued);
        issued.filter(|request| request.sequence.is_some() && request.outcome.is_none())
    }
}
