//! What moves on a connection of HTTP, and whether its client stands still.
//!
//! A piece of a response waits for its client from when it is made until its last byte is written
//! or its stream is reset. What moves is the bytes of responses that h2 writes, which it does as
//! far as the client's windows go. Other frames are no progress: a client that takes nothing has
//! this side answer its pings for as long as it likes. Responses without messages have no window.
//! They wait for the socket alone, and while no piece waits, the socket is judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;
use rpc_core::policy::keepalive::Traffic;
use rpc_core::policy::progress::{Flow, Flows};

use super::header_list::HeaderListLimit;
use crate::frames::Unfinished;

/// The bytes of one turn: what is read before the requests that it made are looked at. A byte of a
/// request's headers may become some 150 bytes, so that a turn makes 2.4 MiB at most.
const TURN_LEN: usize = 16 << 10;

/// The limits of h2 that end a connection, by the text of their GOAWAY, which h2's error lacks.
const LIMITS: [(&str, &str); 4] = [
    ("too_many_continuations", "headers in too many frames"),
    ("header_list_way_too_large", "headers far beyond limits.max_metadata_len"),
    ("too_many_data_frames", "100 frames of data that are empty"),
    ("too_many_internal_resets", "1,024 streams that broke the protocol"),
];

/// The counters of a connection. An event is one relaxed addition.
#[derive(Debug, Default)]
pub(super) struct Flowing {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    waiting_count: AtomicUsize,
    /// The socket takes nothing more for now.
    is_blocked: AtomicBool,
    /// What is left of the turn. Used by the connection's task alone.
    turn_left: AtomicUsize,
    /// There was more to read when the turn was over.
    is_turn_over: AtomicBool,
    /// Of [`Unfinished`].
    partial_frame_len: AtomicUsize,
    is_header_block_open: AtomicBool,
    is_ping_due: AtomicBool,
    /// Requests that have no whole response yet.
    owed_count: AtomicUsize,
    /// One more than the place in `LIMITS` of the limit that was told the client.
    limit: AtomicUsize,
    driver: AtomicWaker,
    /// The client's limit on headers and trailers.
    pub(super) header_list: HeaderListLimit,
}

impl Flowing {
    /// Begins the next turn.
    pub(super) fn begin_turn(&self) {
        self.turn_left.store(TURN_LEN, Ordering::Relaxed);
        self.is_turn_over.store(false, Ordering::Relaxed);
    }

    /// Returns true if reading has stopped because the turn is over.
    pub(super) fn is_turn_over(&self) -> bool {
        self.is_turn_over.load(Ordering::Relaxed)
    }

    /// Returns true if something may be read in this turn.
    pub(super) fn may_read(&self) -> bool {
        let may = self.turn_left.load(Ordering::Relaxed) > 0;
        if !may {
            self.is_turn_over.store(true, Ordering::Relaxed);
        }
        may
    }

    /// So many bytes came.
    pub(super) fn read(&self, len: usize) {
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let left = self.turn_left.load(Ordering::Relaxed).saturating_sub(len);
        self.turn_left.store(left, Ordering::Relaxed);
    }

    /// What of the client's bytes waits for more of them.
    pub(super) fn set_unfinished(&self, unfinished: Unfinished) {
        self.partial_frame_len.store(unfinished.partial_frame_len, Ordering::Relaxed);
        self.is_header_block_open.store(unfinished.is_header_block_open, Ordering::Relaxed);
    }

    pub(super) fn unfinished(&self) -> Unfinished {
        Unfinished {
            partial_frame_len: self.partial_frame_len.load(Ordering::Relaxed),
            is_header_block_open: self.is_header_block_open.load(Ordering::Relaxed),
        }
    }

    /// The socket took so many bytes, or none for now.
    pub(super) fn written(&self, len: Option<usize>) {
        self.is_blocked.store(len.is_none(), Ordering::Relaxed);
        self.written_bytes.fetch_add(len.unwrap_or(0) as u64, Ordering::Relaxed);
    }

    /// Looks for a limit at the end of what is written.
    pub(super) fn look_for_limit(&self, written: &[u8]) {
        if let Some(at) = LIMITS.iter().position(|(text, _)| written.ends_with(text.as_bytes())) {
            self.limit.store(at + 1, Ordering::Relaxed);
        }
    }

    /// The limit that the client was told last, if any: its name in h2 and its meaning.
    pub(super) fn limit(&self) -> Option<(&'static str, &'static str)> {
        LIMITS.get(self.limit.load(Ordering::Relaxed).wrapping_sub(1)).copied()
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

    /// Counts a request until the guard goes: its response is made then, or given up.
    pub(super) fn owe(self: &Arc<Self>) -> OwedResponse {
        self.owed_count.fetch_add(1, Ordering::Relaxed);
        OwedResponse(Arc::clone(self))
    }

    /// Returns true if a response is owed.
    pub(super) fn has_calls(&self) -> bool {
        self.owed_count.load(Ordering::Relaxed) > 0
    }

    /// Returns true if no response is owed, and none waits for the client or its socket.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_calls() && !self.flows().sending.is_waiting
    }

    /// Asks the connection's task for a ping.
    pub(super) fn ask_for_ping(&self) {
        self.is_ping_due.store(true, Ordering::Relaxed);
        self.driver.wake();
    }

    /// Returns true if a ping was asked for since the last look.
    pub(super) fn take_ping(&self, waker: &std::task::Waker) -> bool {
        self.driver.register(waker);
        self.is_ping_due.swap(false, Ordering::Relaxed)
    }

    /// The bytes both ways, by which a client that is gone is found.
    pub(super) fn traffic(&self) -> Traffic {
        let sent_count = self.written_bytes.load(Ordering::Relaxed);
        Traffic { sent_count, received_bytes: self.read_bytes() }
    }

    /// What the progress of the client is judged by. Bodies are read as they come, and bounded by
    /// windows. Only headers that have begun wait for bytes that a client owes.
    pub(super) fn flows(&self) -> Flows {
        let sending = if self.waiting_count.load(Ordering::Relaxed) > 0 {
            Flow { is_waiting: true, moved_bytes: self.taken_bytes.load(Ordering::Relaxed) }
        } else {
            Flow {
                is_waiting: self.is_blocked.load(Ordering::Relaxed),
                moved_bytes: self.written_bytes.load(Ordering::Relaxed),
            }
        };
        let is_waiting = self.is_header_block_open.load(Ordering::Relaxed);
        Flows { sending, receiving: Flow { is_waiting, moved_bytes: self.read_bytes() } }
    }
}

/// Counts a request whose response is not whole.
#[derive(Debug)]
pub(super) struct OwedResponse(Arc<Flowing>);

impl Drop for OwedResponse {
    fn drop(&mut self) {
        self.0.owed_count.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn a_blocked_socket_waits_until_it_takes_something() {
        let flowing = Flowing::default();
        flowing.written(Some(5));
        flowing.written(None);
        assert_eq!(flowing.flows().sending, Flow { is_waiting: true, moved_bytes: 5 });
        // What the client takes of the socket is no progress of a piece that waits.
        flowing.begin_wait();
        flowing.written(Some(9));
        assert_eq!(flowing.flows().sending, Flow { is_waiting: true, moved_bytes: 0 });
        flowing.end_wait();
        assert_eq!(flowing.flows().sending, Flow { is_waiting: false, moved_bytes: 14 });
    }

    #[test]
    fn a_turn_is_over_when_its_bytes_are_read() {
        let flowing = Flowing::default();
        flowing.begin_turn();
        assert!(flowing.may_read());
        flowing.read(TURN_LEN + 1);
        assert!(!flowing.is_turn_over(), "there may be nothing more");
        assert!(!flowing.may_read() && flowing.is_turn_over());
        flowing.begin_turn();
        assert!(flowing.may_read() && !flowing.is_turn_over());
    }
}
