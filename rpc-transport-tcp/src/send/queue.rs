//! What senders have queued and the writer has not taken up, and who is to write.
//!
//! Free of I/O; it stands behind a lock that is held for a few instructions at a time.
//!
//! A sender writes, with two exceptions. While the connection's task *holds* the writing,
//! because the socket is full or because large frames have had their turn, it goes on by itself.
//! And while the queue is *corked*, because frames of one read are being delivered, or the tasks
//! that they woke have not had their turn yet, frames gather and go out together.

use std::time::Instant;

use rpc_core::memory::{MemoryCharge, MemoryShare};
use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;

use crate::codec::record::{self, SINGLE_LEN_MAX};
use crate::pacing::chunk_len::ChunkLen;
use crate::pacing::window::{SendWindow, WINDOW_MAX};
use crate::send::batch::{FreeList, WriteBatch};
use crate::send::frame::{Frame, LARGE_BYTES_MAX, LargeFrame};
use crate::send::scheduler::WriteScheduler;

/// A window has room for all that may wait to be written.
const _: () = assert!(WINDOW_MAX == LARGE_BYTES_MAX as u64);

/// The bytes of small frames that may wait to be written: 64 of the longest.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * SINGLE_LEN_MAX;

/// The bytes of small frames that a peer may leave waiting. Those beyond [`SMALL_BYTES_MAX`] are
/// headers alone, which take their place without asking: 380,000 of them mean that the peer goes on
/// with its streams and never reads what that has us say.
const FLOOD_BYTES_MAX: usize = SMALL_BYTES_MAX + (16 << 20);

/// The calls that are noted as given up until the next write; frames of further ones are merely
/// sent. A peer that reads nothing may give up what it likes, and as often.
const ABANDONED_MAX: usize = 1024;

/// The bytes that gather in a corked queue before they are written all the same: half of what 64
/// small calls are. With all of them in one write the two sides would take turns, each asleep while
/// the other works, which costs more than a write does: 64 calls in flight are twice as fast so.
const CORKED_BYTES_MAX: usize = 3 << 10;

/// Why only the connection's task writes what is left of large frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The socket takes no more; no other task writes.
    SocketFull,
    /// Large frames have had their turn; others write small ones.
    TurnOver,
    /// The peer has enough to read for now; others write small ones.
    Unread,
}

/// What a queue has taken since this was asked last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) small_count: u64,
    pub(crate) large_count: u64,
    /// The bytes that were written into memory of the transport.
    pub(crate) bytes: u64,
}

/// What senders touch.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    small: WriteBatch,
    large: Vec<LargeFrame>,
    /// The calls whose large frames were given up.
    abandoned: Vec<u64>,
    taken: Taken,
    /// The ack that has not gone out yet.
    ack: Option<u64>,
    /// What the peer has read.
    window: SendWindow,
    chunk_len: ChunkLen,
    /// The bytes of small frames that the writer has taken up and not written.
    staged_bytes: usize,
    /// What small frames count towards the process's memory: nothing while the socket takes them.
    backlog: MemoryCharge,
    /// Whether a sender waits for room.
    is_awaited: bool,
    /// Whether something is not written yet.
    is_busy: bool,
    /// How many frames were queued since the queue was corked.
    corked: Option<usize>,
    /// Memory for small frames.
    pub(crate) free_list: FreeList,
    pub(crate) hold: Option<Hold>,
    pub(crate) closed: Option<CloseReason>,
}

impl SendQueue {
    /// Has what the socket does not take counted as memory.
    pub(crate) fn count_backlog(&mut self, memory: &MemoryShare) {
        self.backlog = memory.take(0);
    }

    /// Adds a frame; true when the sender is to write.
    #[must_use]
    pub(crate) fn push(&mut self, frame: Frame, frame_len: usize) -> bool {
        self.taken.bytes += frame_len as u64;
        match frame {
            Frame::Small(record) => {
                let memory = self.small.push(record);
                memory.into_iter().for_each(|memory| self.free_list.keep(memory));
                self.pushed_small()
            }
            Frame::Large(frame) => {
                self.taken.large_count += 1;
                self.large.push(frame);
                self.is_busy = true;
                self.hold.is_none() && self.corked.is_none()
            }
        }
    }

    /// Adds a record that is short; true when the sender is to write.
    #[must_use]
    pub(crate) fn push_bytes(&mut self, record: &[u8]) -> bool {
        self.small.push_bytes(record);
        self.pushed_small()
    }

    /// Adds an ack, in place of one that has not gone out; true when it is to be written here.
    #[must_use]
    pub(crate) fn push_ack(&mut self, read: u64) -> bool {
        self.ack = Some(read);
        self.is_busy = true;
        self.hold != Some(Hold::SocketFull) && self.corked.is_none()
    }

    /// Records an ack; true when the connection's task can go on.
    ///
    /// # Errors
    ///
    /// When the peer cannot have read what it says.
    pub(crate) fn handle_ack(&mut self, read: u64) -> Result<bool, ProtocolError> {
        self.window.handle_ack(read, Instant::now())?;
        let is_awaited = self.hold == Some(Hold::Unread);
        if is_awaited {
            self.hold = Some(Hold::TurnOver);
        }
        Ok(is_awaited)
    }

    fn pushed_small(&mut self) -> bool {
        self.taken.small_count += 1;
        self.is_busy = true;
        if let Some(count) = &mut self.corked {
            *count += 1;
        }
        self.charge_backlog();
        let is_gathering = self.corked.is_some() && self.small.bytes() < CORKED_BYTES_MAX;
        self.hold != Some(Hold::SocketFull) && !is_gathering
    }

    /// Records that a call's large frames were given up. The word that gives up the call
    /// would overtake those that have not begun, and the peer could not know which call it means.
    pub(crate) fn abandon(&mut self, call: u64) {
        let has_room = self.abandoned.len() < ABANDONED_MAX;
        if self.is_busy && has_room && !self.abandoned.contains(&call) {
            self.abandoned.push(call);
        }
    }

    /// Moves everything to the writer, and says what that is. Gives back what no call wants any
    /// more, to be dropped when the queue is not locked: it may be the application's.
    pub(crate) fn take_up(&mut self, scheduler: &mut WriteScheduler) -> (Taken, Vec<LargeFrame>) {
        if self.chunk_len.is_writing() && scheduler.is_at_boundary() {
            self.chunk_len.end(Instant::now());
        }
        if self.small.bytes() > 0 && scheduler.has_chunks() {
            self.window.handle_small();
        }
        if let Some(read) = self.ack.take() {
            self.small.push_bytes(&record::ack(read));
        }
        scheduler.stage_small(&mut self.small);
        self.large.drain(..).for_each(|frame| scheduler.push_large(frame));
        let unwanted = scheduler.take_unbegun(&self.abandoned);
        self.abandoned.clear();
        self.staged_bytes = scheduler.small_bytes();
        self.charge_backlog();
        self.is_busy = !scheduler.is_empty();
        (std::mem::take(&mut self.taken), unwanted)
    }

    /// Counts small frames as memory while the socket is full. What passes through is not counted:
    /// it would cost every call, and is gone at once.
    pub(crate) fn charge_backlog(&mut self) {
        if self.hold == Some(Hold::SocketFull) || !self.backlog.is_empty() {
            self.backlog.set((self.small.bytes() + self.staged_bytes) as u64);
        }
    }

    /// Whether a chunk of a large frame may be written. A side that closes reads no acks any more.
    pub(crate) fn may_send_chunk(&self) -> bool {
        // Time is looked at only when it counts.
        !self.window.is_paced() || self.closed.is_some() || self.window.may_send(Instant::now())
    }

    /// Has the next chunk of a large frame staged.
    pub(crate) fn stage_chunk(&mut self, scheduler: &mut WriteScheduler) {
        let (now, is_paced) = (Instant::now(), self.window.is_paced());
        let len_max = if is_paced { self.window.chunk_len_max(now) } else { self.chunk_len.max() };
        let len = scheduler.stage_chunk(len_max, is_paced);
        self.chunk_len.begin(len, now);
        self.window.handle_sent(len, now);
    }

    /// Whether something waits for a writer to take it up.
    pub(crate) fn is_waiting(&self) -> bool {
        self.has_small() || self.ack.is_some() || !self.large.is_empty()
    }

    /// Whether a small frame waits for a writer to take it up.
    pub(crate) fn has_small(&self) -> bool {
        self.small.bytes() > 0
    }

    /// Whether something is not written yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether a small frame may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.small.bytes() + self.staged_bytes < SMALL_BYTES_MAX
    }

    /// Whether more waits than a peer can cause that reads.
    pub(crate) fn is_flooded(&self) -> bool {
        self.small.bytes() + self.staged_bytes > FLOOD_BYTES_MAX
    }

    /// Records that a sender waits for room.
    pub(crate) fn await_room(&mut self) {
        self.is_awaited = true;
    }

    /// Whether those who wait for room are to be told; only half a queue is worth waking for.
    pub(crate) fn takes_waiters(&mut self) -> bool {
        let bytes = self.small.bytes() + self.staged_bytes;
        self.is_awaited && bytes <= SMALL_BYTES_MAX / 2 && std::mem::take(&mut self.is_awaited)
    }

    /// Lets frames gather.
    pub(crate) fn cork(&mut self) {
        self.corked = Some(0);
    }

    /// Lets frames go out again; says how many have gathered.
    pub(crate) fn uncork(&mut self) -> usize {
        self.corked.take().unwrap_or_default()
    }

    /// Drops what waits, and says for ever why nothing more is taken.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.closed.get_or_insert(reason);
        self.small.clear();
        self.large.clear();
        self.abandoned.clear();
        self.ack = None;
        self.backlog.set(0);
        self.is_busy = false;
        self.corked = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use rpc_core::pool::Pool;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::pacing::chunk_len::CHUNK_LEN_MIN;
    use crate::send::frame::LargeShare;

    fn push(queue: &mut SendQueue, len: usize) -> bool {
        queue.push(Frame::Small(Pool::new(0).take(len)), len)
    }

    #[test]
    fn a_corked_queue_gathers_within_bounds() {
        let mut queue = SendQueue::default();
        assert!(push(&mut queue, 100));
        queue.cork();
        assert!(!push(&mut queue, 100));
        assert!(!queue.push_bytes(&[0; 44]));
        assert!(push(&mut queue, CORKED_BYTES_MAX));
        assert_eq!(queue.uncork(), 3);
        assert!(push(&mut queue, 100));
    }

    #[test]
    fn no_task_writes_to_a_full_socket_and_small_frames_go_between_turns() {
        let mut queue = SendQueue { hold: Some(Hold::SocketFull), ..SendQueue::default() };
        assert!(!push(&mut queue, 100));
        queue.hold = Some(Hold::TurnOver);
        assert!(push(&mut queue, 100));
    }

    #[test]
    fn no_more_calls_are_noted_than_a_bound_and_none_twice() {
        let mut queue = SendQueue::default();
        queue.abandon(1);
        assert_eq!(queue.abandoned, [], "nothing is queued");
        let _ = push(&mut queue, 100);
        (0..3).for_each(|_| queue.abandon(1));
        assert_eq!(queue.abandoned, [1]);
        (0..10_000).for_each(|call| queue.abandon(call));
        assert_eq!(queue.abandoned.len(), ABANDONED_MAX);
        let _ = queue.take_up(&mut WriteScheduler::default());
        assert_eq!(queue.abandoned, []);
    }

    #[test]
    fn headers_take_their_place_up_to_a_bound() {
        let mut queue = SendQueue::default();
        while queue.has_room() {
            let _ = push(&mut queue, SINGLE_LEN_MAX);
        }
        let record = [0; 44];
        for _ in 0..FLOOD_BYTES_MAX.saturating_sub(SMALL_BYTES_MAX) / record.len() {
            let _ = queue.push_bytes(&record);
        }
        assert!(!queue.is_flooded());
        let _ = queue.push_bytes(&record);
        assert!(queue.is_flooded());
    }

    #[test]
    fn a_chunk_is_over_when_all_of_it_is_written() {
        let (mut queue, mut scheduler) = (SendQueue::default(), WriteScheduler::default());
        let _permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let share = LargeShare { _permit, _charge: MemoryCharge::default() };
        let memory = Pool::new(0).take(3 * CHUNK_LEN_MIN);
        queue.large.push(LargeFrame::new(memory, Bytes::new(), share));
        let _ = queue.take_up(&mut scheduler);
        queue.stage_chunk(&mut scheduler);
        let len = scheduler.slices().iter().map(|slice| slice.len()).sum::<usize>();
        scheduler.advance(len - 1);
        let _ = queue.take_up(&mut scheduler);
        assert!(queue.chunk_len.is_writing());
        scheduler.advance(1);
        let _ = queue.take_up(&mut scheduler);
        assert!(!queue.chunk_len.is_writing() && queue.is_busy());
    }

    #[test]
    fn room_is_what_is_neither_queued_nor_staged() {
        let (mut queue, mut scheduler) = (SendQueue::default(), WriteScheduler::default());
        while queue.has_room() {
            let _ = push(&mut queue, SINGLE_LEN_MAX);
        }
        queue.await_room();
        let (taken, _) = queue.take_up(&mut scheduler);
        assert_eq!((taken.small_count, taken.bytes), (64, SMALL_BYTES_MAX as u64));
        assert!(queue.is_busy() && !queue.has_room() && !queue.takes_waiters());
        let mut written = 0;
        while !queue.takes_waiters() {
            scheduler.advance(SINGLE_LEN_MAX);
            written += SINGLE_LEN_MAX;
            let _ = queue.take_up(&mut scheduler);
        }
        assert_eq!(written, SMALL_BYTES_MAX / 2);
        assert!(!queue.takes_waiters(), "they are told once");
    }
}
