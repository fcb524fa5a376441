//! What moves on a connection of HTTP/2, and whether its client stands still.
//!
//! A piece of a response waits for its client from when hyper has it until its last byte is written
//! or its stream is reset. What moves is the bytes of responses that h2 writes, which it does as
//! far as the client's windows go. Other frames are no progress: a client that takes nothing has
//! this side answer its pings for as long as it likes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rpc_core::policy::progress::{Flow, Flows};

/// The counters of a connection. An event is one relaxed addition.
#[derive(Debug, Default)]
pub(super) struct Flowing {
    read_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    waiting_count: AtomicUsize,
}

impl Flowing {
    pub(super) fn read(&self, len: usize) {
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// So many bytes of a response's piece were written.
    pub(super) fn taken(&self, len: usize) {
        self.taken_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// A piece of a response begins to wait for its client.
    pub(super) fn begin_wait(&self) {
        self.waiting_count.fetch_add(1, Ordering::Relaxed);
    }

    /// It is written, or its stream is gone.
    pub(super) fn end_wait(&self) {
        self.waiting_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// What the progress of the client is judged by. Requests are read as they come, and bounded by
    /// windows: nothing of them waits for bytes that a client owes.
    pub(super) fn flows(&self) -> Flows {
        let is_waiting = self.waiting_count.load(Ordering::Relaxed) > 0;
        let moved_bytes = self.taken_bytes.load(Ordering::Relaxed);
        Flows { sending: Flow { is_waiting, moved_bytes }, ..Flows::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_waits_while_any_piece_does() {
        let flowing = Flowing::default();
        assert!(!flowing.flows().sending.is_waiting);
        flowing.begin_wait();
        flowing.begin_wait();
        flowing.taken(7);
        flowing.end_wait();
        let flow = flowing.flows().sending;
        assert_eq!(flow, Flow { is_waiting: true, moved_bytes: 7 });
        flowing.end_wait();
        assert!(!flowing.flows().sending.is_waiting);
    }
}
