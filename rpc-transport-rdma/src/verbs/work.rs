//! Work of a queue pair: what is posted, by value, what comes back, and what can be wrong with
//! either.

use std::io;
use std::sync::Arc;

use crate::memory::{MemoryWindows, Sink, Slot};
use crate::verbs::{
    Binding, CompletionError, RawOperation, RawSegment, RemoteKey, RemoteMemory, WorkId, WorkKind,
};

/// A request for a queue pair. It owns the memory that the device will use.
#[derive(Debug)]
pub enum Work {
    /// Sends the first `len` bytes of a slot as a message.
    Send {
        /// The slot.
        slot: Slot,
        /// Length of the message.
        len: u32,
        /// A key of the peer that the message takes away as it arrives. One that is not valid
        /// there fails the connection.
        invalidate: Option<RemoteKey>,
    },
    /// Reads the peer's memory into a part of a sink.
    Read {
        /// The sink; the READs of one message share it.
        sink: Arc<Sink>,
        /// Offset of the bytes in the sink.
        offset: usize,
        /// Number of bytes, at least 1 and at most the port's longest message.
        len: u32,
        /// Location of the bytes in the peer.
        remote: RemoteMemory,
    },
    /// Opens a part of a buffer to the peer, for everything that is posted after it.
    Bind(Binding),
    /// Takes the key of a bound window away from the peer.
    Invalidate(Binding),
}

/// A request that the device is done with.
#[derive(Debug)]
pub struct Done {
    /// The request with its memory.
    pub work: Work,
    /// The result. After an error, requests before the failed one are reported as flushed, although
    /// they may have taken effect at the peer.
    pub outcome: Result<(), CompletionError>,
}

/// An operation of the device and the memory that it works on.
pub(super) struct Parts {
    pub(super) kind: WorkKind,
    pub(super) operation: RawOperation,
    /// `None` for what has no bytes.
    pub(super) segment: Option<RawSegment>,
}

impl Parts {
    /// Takes a piece of work apart, or says why it cannot be. Its windows are among `windows`.
    pub(super) fn of(work: &Work, windows: &MemoryWindows) -> Result<Self, &'static str> {
        Ok(match work {
            Work::Send { slot, len, invalidate } => {
                if *len as usize > slot.len() {
                    return Err("the message is longer than its slot");
                }
                if !slot.is_of(windows.device()) {
                    return Err("the slot is of another device");
                }
                let operation = invalidate.map_or(RawOperation::Send, RawOperation::SendInvalidate);
                let segment = (*len > 0).then(|| slot.segment(*len));
                Self { kind: WorkKind::Send, operation, segment }
            }
            Work::Read { len: 0, .. } => return Err("a READ of nothing"),
            Work::Read { sink, offset, len, remote } => {
                if !sink.is_of(windows.device()) {
                    return Err("the sink is of another device");
                }
                let segment = sink.segment(*offset, *len);
                let segment = Some(segment.ok_or("the READ does not fit its sink")?);
                Self { kind: WorkKind::Read, operation: RawOperation::Read(*remote), segment }
            }
            Work::Bind(binding) => {
                let operation = RawOperation::Bind(windows.bind(binding)?);
                Self { kind: WorkKind::Bind, operation, segment: None }
            }
            Work::Invalidate(binding) => {
                let operation = RawOperation::Invalidate(windows.bound_key(binding)?);
                Self { kind: WorkKind::Invalidate, operation, segment: None }
            }
        })
    }
}

/// Records at the windows that work has succeeded.
pub(super) fn work_done(work: &mut Work, windows: &mut MemoryWindows) {
    match work {
        Work::Bind(binding) => windows.handle_bound(binding),
        Work::Invalidate(binding) => binding.handle_revoked(),
        Work::Send { .. } | Work::Read { .. } => {}
    }
}

/// Why work was not posted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue pair is not connected, has failed or is halted. Nothing was posted.
    #[error("the queue pair is not ready: it is not connected, has failed or is halted")]
    NotReady,
    /// The request at this place of the batch cannot be. Nothing was posted.
    #[error("request {index} of the batch is invalid: {reason}")]
    Invalid {
        /// Its place in the batch.
        index: usize,
        /// The fault in the request.
        reason: &'static str,
    },
    /// The device refused. What it accepted is in flight and the rest is still in the batch; there
    /// is no undo, so the queue pair has failed and wants to be halted.
    #[error("the device took {accepted} requests and refused the next")]
    Device {
        /// Number of requests in flight.
        accepted: usize,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A completion was given to a queue pair that has no such work in flight.
#[derive(Debug, thiserror::Error)]
#[error("a completion of {0:?}, which this queue pair has not in flight")]
pub struct UnknownCompletion(pub WorkId);

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
