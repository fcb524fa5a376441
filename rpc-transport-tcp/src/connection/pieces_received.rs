//! How far the large frames of the peer have come, for those who are not the reading task.
//!
//! The reading task tells after each read, which costs it two stores. A frame that comes in one
//! record is left out: its peer can send nothing else before the rest of it, so that one that
//! stops there is silent, which keepalive finds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rpc_core::calls::progress::Flow;

use crate::codec::decoder::Incoming;

/// The peer's large frames as they were after the last read.
#[derive(Debug, Default)]
pub(crate) struct PiecesReceived {
    are_missing: AtomicBool,
    bytes: AtomicU64,
}

impl PiecesReceived {
    /// Records what `incoming` has.
    pub(crate) fn update(&self, incoming: &Incoming) {
        // The two are looked at together but need not agree: a look that is a read late only
        // makes the peer's time longer.
        self.bytes.store(incoming.receipts.read_bytes(), Ordering::Relaxed);
        self.are_missing.store(incoming.has_transfers(), Ordering::Relaxed);
    }

    /// Whether pieces are missing, and the bytes of all that have come.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            is_waiting: self.are_missing.load(Ordering::Relaxed),
            moved_bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
