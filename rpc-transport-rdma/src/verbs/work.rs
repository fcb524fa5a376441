//! What is posted to a queue pair, by value, and what comes back.

use std::sync::Arc;

use super::{CompletionError, RawOperation, RawSegment, RemoteMemory, WorkKind};
use crate::memory::{Sink, Slot};

/// A request for a queue pair. It owns the memory that the device will use.
#[derive(Debug)]
pub enum Work {
    /// Sends the first `len` bytes of a slot as a message.
    Send {
        /// The slot.
        slot: Slot,
        /// Length of the message.
        len: u32,
    },
    /// Reads the peer's memory into a part of a sink.
    Read {
        /// The sink; the READs of one message share it.
        sink: Arc<Sink>,
        /// Where in the sink the bytes go.
        offset: usize,
        /// How many bytes, at least 1 and at most the port's longest message.
        len: u32,
        /// Where the bytes are in the peer.
        remote: RemoteMemory,
    },
}

impl Work {
    /// What the device is to do with which memory, or why that cannot be.
    pub(super) fn parts(&self) -> Result<(WorkKind, RawOperation, RawSegment), &'static str> {
        match self {
            Self::Send { slot, len } => {
                let is_within = *len as usize <= slot.len();
                let segment = is_within.then(|| slot.segment(*len));
                let segment = segment.ok_or("the message is longer than its slot")?;
                Ok((WorkKind::Send, RawOperation::Send, segment))
            }
            Self::Read { len: 0, .. } => Err("a READ of nothing"),
            Self::Read { sink, offset, len, remote } => {
                let segment =
                    sink.segment(*offset, *len).ok_or("the READ does not fit its sink")?;
                Ok((WorkKind::Read, RawOperation::Read(*remote), segment))
            }
        }
    }
}

/// A request that the device is done with.
#[derive(Debug)]
pub struct Done {
    /// The request with its memory.
    pub work: Work,
    /// Whether it succeeded. After an error, requests before the failed one are reported as
    /// flushed although they may have taken effect at the peer.
    pub outcome: Result<(), CompletionError>,
}
