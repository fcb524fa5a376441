//! What is posted to a queue pair, by value, and what comes back.

use std::sync::Arc;

use super::{Binding, CompletionError, RemoteKey, RemoteMemory};
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
        /// A key of the peer that the message takes away as it arrives. One that is not valid
        /// there fails the connection.
        invalidate: Option<RemoteKey>,
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
    /// Whether it succeeded. After an error, requests before the failed one are reported as
    /// flushed although they may have taken effect at the peer.
    pub outcome: Result<(), CompletionError>,
}
