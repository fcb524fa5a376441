//! What moves on a connection of HTTP/2, and whether its client stands still.
//!
//! hyper asks a response for its next piece once the client's window has room for a byte. So a
//! response that gave a piece and is not asked for the next one waits for its client.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rpc_core::policy::progress::{Flow, Flows};

/// The counters of a connection. An event is one relaxed addition.
#[derive(Debug, Default)]
pub(super) struct Flowing {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    waiting_count: AtomicUsize,
}

impl Flowing {
    pub(super) fn read(&self, len: usize) {
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn written(&self, len: usize) {
        self.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// A response has given a piece.
    pub(super) fn begin_wait(&self) {
        self.waiting_count.fetch_add(1, Ordering::Relaxed);
    }

    /// It is asked for the next one, or is gone.
    pub(super) fn end_wait(&self) {
        self.waiting_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// What the progress of the client is judged by. Requests are read as they come, and bounded by
    /// windows: nothing of them waits for bytes that a client owes.
    pub(super) fn flows(&self) -> Flows {
        let is_waiting = self.waiting_count.load(Ordering::Relaxed) > 0;
        let moved_bytes = self.written_bytes.load(Ordering::Relaxed);
        Flows { sending: Flow { is_waiting, moved_bytes }, ..Flows::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_is_not_asked_for_more_waits_for_its_client() {
        let flowing = Flowing::default();
        assert!(!flowing.flows().sending.is_waiting);
        flowing.begin_wait();
        flowing.begin_wait();
        flowing.written(7);
        flowing.end_wait();
        let flow = flowing.flows().sending;
        assert_eq!(flow, Flow { is_waiting: true, moved_bytes: 7 });
        flowing.end_wait();
        assert!(!flowing.flows().sending.is_waiting);
    }
}
