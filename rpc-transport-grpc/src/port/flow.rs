//! Counters of a connection over HTTP, and the verdict if its client has stalled.
//!
//! A piece of a response waits for its client until its last byte is written or its stream is
//! reset. Progress means response bytes that h2 writes, as far as the client's windows allow. Other
//! frames do not count: a client that takes nothing can still have this side answer its pings
//! forever. Responses without messages have no window and wait only for the socket. While no piece
//! waits, the socket itself is judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;
use rpc_core::policy::keepalive::Traffic;
use rpc_core::policy::progress::{Flow, Flows};

use super::header_list::HeaderListLimit;
use crate::frames::Unfinished;

/// Bytes read per turn, before the connection handles the requests that they contain. One byte of a
/// request's headers may expand to about 150 bytes, so a turn creates at most 2.4 MiB.
const TURN_LEN: usize = 16 << 10;

/// The h2 limits that end a connection. h2's error lacks the text of their GOAWAY, so it is found
/// in the written bytes.
const LIMITS: [(&str, &str); 4] = [
    ("too_many_continuations", "headers in too many frames"),
    ("header_list_way_too_large", "headers far over limits.max_metadata_len"),
    ("too_many_data_frames", "100 empty data frames"),
    ("too_many_internal_resets", "1,024 streams that broke the protocol"),
];

/// The counters of a connection. Each event costs one relaxed addition.
#[derive(Debug, Default)]
pub(super) struct Flowing {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    waiting_count: AtomicUsize,
    /// True while the socket accepts no bytes.
    is_blocked: AtomicBool,
    /// Bytes left in the current turn. Only the connection's task uses it.
    turn_left: AtomicUsize,
    /// True if the turn ended with bytes left to read.
    is_turn_over: AtomicBool,
    /// See [`Unfinished`].
    partial_frame_len: AtomicUsize,
    is_header_block_open: AtomicBool,
    is_ping_due: AtomicBool,
    /// Number of requests without a complete response.
    owed_count: AtomicUsize,
    /// One plus the index in `LIMITS` of the limit that the client was told.
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

    /// Returns true if the end of the turn has stopped a read.
    pub(super) fn is_turn_over(&self) -> bool {
        self.is_turn_over.load(Ordering::Relaxed)
    }

    /// Returns true if this turn allows another read.
    pub(super) fn may_read(&self) -> bool {
        let may = self.turn_left.load(Ordering::Relaxed) > 0;
        if !may {
            // Remembered only when a read was attempted. An exhausted turn without one needs no
            // further turn.
            self.is_turn_over.store(true, Ordering::Relaxed);
        }
        may
    }

    /// Counts received bytes.
    pub(super) fn read(&self, len: usize) {
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let left = self.turn_left.load(Ordering::Relaxed).saturating_sub(len);
        self.turn_left.store(left, Ordering::Relaxed);
    }

    /// Sets the bytes that wait for more from the client.
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

    /// Counts bytes that the socket accepted. `None` means that it accepts no more for now.
    pub(super) fn written(&self, len: Option<usize>) {
        self.is_blocked.store(len.is_none(), Ordering::Relaxed);
        self.written_bytes.fetch_add(len.unwrap_or(0) as u64, Ordering::Relaxed);
    }

    /// Looks for the text of a limit at the end of the written bytes.
    // h2 writes the GOAWAY last, and its debug text ends the frame.
    pub(super) fn look_for_limit(&self, written: &[u8]) {
        if let Some(at) = LIMITS.iter().position(|(text, _)| written.ends_with(text.as_bytes())) {
            self.limit.store(at + 1, Ordering::Relaxed);
        }
    }

    /// Returns the h2 name and the meaning of the limit that the client was told, if any.
    pub(super) fn limit(&self) -> Option<(&'static str, &'static str)> {
        LIMITS.get(self.limit.load(Ordering::Relaxed).wrapping_sub(1)).copied()
    }

    /// Counts written bytes of a response's piece.
    pub(super) fn taken(&self, len: usize) {
        self.taken_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the socket has accepted, and those that it has received.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.written_bytes.load(Ordering::Relaxed), self.read_bytes())
    }

    /// Counts a piece of a response that begins to wait for its client.
    pub(super) fn begin_wait(&self) {
        self.waiting_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the wait of a piece that is written or whose stream is gone.
    pub(super) fn end_wait(&self) {
        self.waiting_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request until the guard is dropped: when its response is complete or abandoned.
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

    /// Asks the connection's task to send a ping.
    pub(super) fn ask_for_ping(&self) {
        // The flag is set before the wake-up. `take_ping` registers its waker before it reads the
        // flag, so a request between the two is not lost.
        self.is_ping_due.store(true, Ordering::Relaxed);
        self.driver.wake();
    }

    /// Takes the request for a ping, if there is one. Registers `waker` for the next one.
    pub(super) fn take_ping(&self, waker: &std::task::Waker) -> bool {
        self.driver.register(waker);
        self.is_ping_due.swap(false, Ordering::Relaxed)
    }

    /// Returns the bytes in both directions. The keepalive uses them to detect a dead client.
    pub(super) fn traffic(&self) -> Traffic {
        let sent_count = self.written_bytes.load(Ordering::Relaxed);
        Traffic { sent_count, received_bytes: self.read_bytes() }
    }

    /// Returns the flows by which the server judges the client's progress.
    ///
    /// Bodies are read as they arrive, within their windows. Only an incomplete header block waits
    /// for bytes that the client owes.
    pub(super) fn flows(&self) -> Flows {
        // A slow reader may still take other frames from the socket. While a piece waits, only
        // bytes of pieces count as progress.
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

/// A guard that counts a request until its response is complete.
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
    fn a_connection_waits_while_any_piece_waits() {
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
    fn a_blocked_socket_waits_until_it_accepts_bytes() {
        let flowing = Flowing::default();
        flowing.written(Some(5));
        flowing.written(None);
        assert_eq!(flowing.flows().sending, Flow { is_waiting: true, moved_bytes: 5 });
        // Bytes that the socket accepts are no progress for a waiting piece.
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
