//! The frames that senders have queued, and the turn to write them.
//!
//! Free of I/O and of clocks. Its lock is held for a few instructions at a time. A writing task
//! also holds the [`WriteScheduler`], asks [`SendQueue::next`] before each write, and follows its
//! answer. [`Turn`] names the party that writes next.
//!
//! The queue is *corked* while the frames of one read are delivered, and until the tasks that they
//! woke have run. Frames then gather and leave together. The end of the answer to a frame that is
//! delivered alone does not wait.

use std::collections::VecDeque;
use std::time::Instant;

use rpc_core::memory::{MemoryCharge, MemoryShare};
use rpc_core::transport::CloseReason;
use rpc_core::wire::{FrameKind, ProtocolError};

use crate::codec::record::{self, RECORD_HEADER_LEN, SINGLE_LEN_MAX};
use crate::pacing::chunk_len::{CHUNK_LEN_MAX, ChunkLen};
use crate::pacing::window::{SendWindow, WINDOW_MAX};
use crate::send::batch::WriteBatch;
use crate::send::frame::{Frame, LARGE_BYTES_MAX, LargeFrame, SentCounts};
use crate::send::pass::{Next, Pass, Writer};
use crate::send::scheduler::WriteScheduler;
use crate::send::turn::{Blocked, Turn};

/// The window has room for everything that may wait to be written.
const _: () = assert!(WINDOW_MAX == LARGE_BYTES_MAX as u64);

/// Bytes written before other tasks get their turn: one long chunk, about 0.2 ms. Shorter turns
/// wake another thread in the middle of most large messages, which costs more than it gains.
const TURN_BYTES: usize = CHUNK_LEN_MAX;

/// Bytes of small frames that a full socket may leave here even if the peer's share of the memory
/// budget is used up: a few replies.
const UNCHECKED_BYTES_MAX: usize = SINGLE_LEN_MAX;

/// Maximum bytes of small frames that wait to be written: 64 of the longest.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * SINGLE_LEN_MAX;

/// Bytes of small frames at which the connection ends.
///
/// Control frames bypass [`SMALL_BYTES_MAX`]. A backlog of 16 MiB of them, 380,000 frames, means
/// that the peer keeps sending and never reads the replies that it causes.
const FLOOD_BYTES_MAX: usize = SMALL_BYTES_MAX + (16 << 20);

/// Maximum number of cancelled calls remembered until the next write. The large frames of further
/// ones are simply sent. A peer that reads nothing may cancel any number of calls.
const ABANDONED_MAX: usize = 1024;

/// Bytes that gather in a corked queue before they are written anyway: half of 64 small calls.
///
/// With all of them in one write, the two sides would alternate, each asleep while the other works.
/// That costs more than a write: this bound makes 64 calls in flight twice as fast.
const CORKED_BYTES_MAX: usize = 3 << 10;

/// Number of tasks that a delivery must wake for senders to defer their writes until the next one.
///
/// The connection's task lets them run first, then writes for all of them. 64 callers on two
/// threads make 0.07 `send` calls per call this way, and 0.38 otherwise. With fewer callers, the
/// detour costs more than the writes: 20 % more CPU per call at 4 in flight.
pub(crate) const DEFERRED_COUNT_MIN: u64 = 8;

/// The life cycle of a queue.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum QueuePhase {
    #[default]
    Open,
    /// Closed by this side: takes no more frames, and writes the queued ones.
    Draining,
    /// Takes no more frames, and writes none.
    Closed(CloseReason),
}

/// The state of corking.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Cork {
    #[default]
    Out,
    In,
    /// Corked while one frame is delivered. Only what ends an answer may leave.
    Alone,
}

/// The state that senders share.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    turn: Turn,
    phase: QueuePhase,
    cork: Cork,
    /// The number of small frames that were queued before the delivery that is under way, or the
    /// last one.
    queued_before: u64,
    /// True while senders leave their writes to the connection's task.
    defers: bool,
    /// True if the connection's task must still be notified of a deferred frame.
    is_driver_due: bool,
    small: WriteBatch,
    /// Large frames that have not begun.
    large: VecDeque<LargeFrame>,
    /// Calls whose large frames are dropped if they have not begun.
    abandoned: Vec<u64>,
    /// The ack that has not left yet.
    ack: Option<u64>,
    queued: SentCounts,
    sent: SentCounts,
    window: SendWindow,
    chunk_len: ChunkLen,
    /// Bytes of small frames that the scheduler holds unwritten.
    staged_bytes: usize,
    /// The charge for small frames against the process's memory: nothing while the socket keeps up.
    backlog: MemoryCharge,
    /// True if a sender waits for room.
    is_awaited: bool,
}

impl SendQueue {
    /// Charges `memory` for the bytes that the socket does not accept.
    pub(crate) fn count_backlog(&mut self, memory: &MemoryShare) {
        self.backlog = memory.take(0);
    }

    /// Adds a frame whose `written_len` bytes were written into the transport's memory. Returns
    /// true if the sender must write.
    #[must_use]
    pub(crate) fn push(&mut self, frame: Frame, written_len: usize) -> bool {
        self.queued.bytes += written_len as u64;
        match frame {
            Frame::Small(record) => {
                self.small.push(record);
                self.pushed_small()
            }
            Frame::Large(frame) => {
                self.queued.large_count += 1;
                self.large.push_back(frame);
                self.claim_turn() == Turn::Anyone && self.cork == Cork::Out
            }
        }
    }

    /// Adds a frame that is a short record. Returns true if the sender must write.
    #[must_use]
    #[inline(always)]
    pub(crate) fn push_record(&mut self, record: &[u8]) -> bool {
        self.queued.bytes += frame_len(record.len());
        self.push_bytes(record)
    }

    /// Returns true if nothing is queued or being written, and a sender would write `record` at
    /// once.
    pub(crate) fn is_idle(&self, record: &[u8]) -> bool {
        let may_leave = match self.cork {
            Cork::Out => true,
            Cork::In => false,
            Cork::Alone => ends_answer(record),
        };
        self.turn == Turn::Idle && may_leave && !self.defers && self.phase == QueuePhase::Open
    }

    /// Records that a sender writes a record directly. The queue must be idle.
    pub(crate) fn begin_alone(&mut self, record_len: usize) {
        self.turn = Turn::Anyone;
        self.queued.small_count += 1;
        self.queued.bytes += frame_len(record_len);
    }

    /// Records that the record is written. Returns false if the sender must go on, because more was
    /// queued meanwhile or the connection's task has to look.
    pub(crate) fn end_alone(&mut self, pass: &Pass) -> bool {
        let is_alone = self.turn == Turn::Anyone
            && self.phase == QueuePhase::Open
            && !pass.is_socket_full
            && self.small.bytes() == 0
            && self.large.is_empty()
            && self.ack.is_none();
        // Any other state means that the queue changed while the record was written. Ending here
        // would leave those frames without a writer.
        if is_alone {
            self.turn = Turn::Idle;
            self.sent = self.queued;
            self.abandoned.clear();
        }
        is_alone
    }

    /// Adds a short record. Returns true if the sender must write.
    #[must_use]
    #[inline(always)]
    pub(crate) fn push_bytes(&mut self, record: &[u8]) -> bool {
        self.small.push_bytes(record);
        self.pushed_small()
    }

    /// Adds an ack, which replaces one that has not left. Returns true if the caller must write it.
    #[must_use]
    pub(crate) fn push_ack(&mut self, read: u64) -> bool {
        // Acks are cumulative, so a newer one makes an unsent one redundant.
        self.ack = Some(read);
        self.claim_turn() != Turn::Driver(Blocked::SocketFull) && self.cork == Cork::Out
    }

    /// Records an ack from the peer. Returns true if the connection's task can go on.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer cannot have read that much.
    pub(crate) fn handle_ack(&mut self, read: u64, now: Instant) -> Result<bool, ProtocolError> {
        self.window.handle_ack(read, now)?;
        Ok(self.unblock(Blocked::WindowFull))
    }

    /// Records that the socket accepts more. Small frames no longer wait for the connection's task.
    pub(crate) fn handle_writable(&mut self) {
        self.unblock(Blocked::SocketFull);
    }

    /// Gives the connection's task its turn if it waits for `blocked`. Returns true if it did.
    fn unblock(&mut self, blocked: Blocked) -> bool {
        let is_blocked = self.turn == Turn::Driver(blocked);
        if is_blocked {
            self.turn = Turn::Driver(Blocked::TurnOver);
        }
        is_blocked
    }

    #[inline(always)]
    fn pushed_small(&mut self) -> bool {
        self.queued.small_count += 1;
        let is_long = self.small.bytes() >= CORKED_BYTES_MAX;
        // Only from `Idle`: a writer that is active would send the frame anyway, without the
        // detour.
        if self.defers && self.turn == Turn::Idle && self.cork == Cork::Out && !is_long {
            (self.turn, self.is_driver_due) = (Turn::Driver(Blocked::Deferred), true);
        }
        let turn = self.claim_turn();
        self.charge_backlog();
        // Nothing can be written to a full socket. The frame waits for the connection's task.
        let is_full = turn == Turn::Driver(Blocked::SocketFull);
        let is_awaited = self.cork != Cork::Out || turn == Turn::Driver(Blocked::Deferred);
        !is_full && (is_long || !is_awaited)
    }

    /// Returns true once after a frame was deferred. The caller then notifies the connection's
    /// task.
    pub(crate) fn takes_deferral(&mut self) -> bool {
        std::mem::take(&mut self.is_driver_due)
    }

    /// Makes sure that queued frames are written: by anyone, unless another party has the turn.
    fn claim_turn(&mut self) -> Turn {
        if self.turn == Turn::Idle {
            self.turn = Turn::Anyone;
        }
        self.turn
    }

    /// Records that a call was cancelled. The CANCEL would overtake those of its large frames that
    /// have not begun, and the peer could not tell which call it means.
    pub(crate) fn abandon(&mut self, call: u64) {
        let has_room = self.abandoned.len() < ABANDONED_MAX;
        // An idle queue has no large frames to drop. Remembering the call would only leak until the
        // next write.
        if self.is_busy() && has_room && !self.abandoned.contains(&call) {
            self.abandoned.push(call);
        }
    }

    /// Decides the writer's next step, and hands the queued frames to the scheduler.
    ///
    /// Unless the step is to write, the writer unlocks the scheduler before this queue. A task that
    /// queues a frame afterwards then finds the scheduler unlocked, and `next` has seen every frame
    /// queued before. With the other order, a frame could be left to a writer that is done.
    pub(crate) fn next(
        &mut self,
        scheduler: &mut WriteScheduler,
        pass: &mut Pass,
        now: impl Fn() -> Instant,
    ) -> Next {
        // A closed queue frees everything here, since only the holder of the scheduler's lock can.
        if let QueuePhase::Closed(_) = self.phase {
            scheduler.discard_all(&mut pass.discarded);
            pass.discarded.extend(self.large.drain(..));
            return Next::Done;
        }
        if pass.is_socket_full || self.turn == Turn::Driver(Blocked::SocketFull) {
            // Another task may have filled the socket since this one was told to write. Even if all
            // bytes were accepted, a stream may still owe a flush, which the connection's task
            // waits for.
            self.staged_bytes = scheduler.small_bytes();
            let next = self.block(Blocked::SocketFull);
            self.charge_backlog();
            return next;
        }
        if self.chunk_len.is_writing() && scheduler.is_at_boundary() {
            self.chunk_len.end(now());
        }
        self.drain_into(scheduler, pass);
        // Mid-record there is no choice: the rest of it comes first. The only question is who
        // writes it.
        if !scheduler.is_at_boundary() {
            return if pass.bytes < TURN_BYTES {
                Next::Write
            } else {
                self.block(Blocked::TurnOver)
            };
        }
        if scheduler.has_large() || !self.large.is_empty() {
            return self.next_chunk(scheduler, pass, &now);
        }
        // Nothing is queued or staged, and the queue's lock is held: no frame can slip in unseen.
        self.turn = Turn::Idle;
        // The connection's task waits for the end of the drain.
        if self.phase == QueuePhase::Draining { Next::Yield } else { Next::Done }
    }

    /// Decides the next step when only chunks are left.
    fn next_chunk(
        &mut self,
        scheduler: &mut WriteScheduler,
        pass: &Pass,
        now: &impl Fn() -> Instant,
    ) -> Next {
        let is_drivers = matches!(self.turn, Turn::Driver(_));
        let is_paced = self.window.is_paced();
        // A closing side reads no acks, so it must not wait for one. The clock is read only if it
        // matters.
        if self.phase == QueuePhase::Open && is_paced && !self.window.may_send(now()) {
            return self.block(Blocked::WindowFull);
        }
        // A sender's call must not wait for another call's large frame.
        if pass.bytes >= TURN_BYTES || (pass.writer == Writer::Sender && is_drivers) {
            return self.block(Blocked::TurnOver);
        }
        let now = now();
        let len_max = if is_paced { self.window.chunk_len_max(now) } else { self.chunk_len.max() };
        let len = scheduler.stage_chunk(&mut self.large, len_max, is_paced);
        self.chunk_len.begin(len, now);
        self.window.handle_sent(len, now);
        Next::Write
    }

    /// Leaves the rest to the connection's task.
    fn block(&mut self, blocked: Blocked) -> Next {
        self.turn = Turn::Driver(blocked);
        if blocked == Blocked::WindowFull { Next::AwaitAck } else { Next::Yield }
    }

    /// Moves small frames and the ack to the scheduler. Discards large frames of cancelled calls
    /// that have not begun.
    fn drain_into(&mut self, scheduler: &mut WriteScheduler, pass: &mut Pass) {
        // Checked before the small frames move, while the two still share the connection.
        if self.small.bytes() > 0 && scheduler.has_large() {
            self.window.handle_small();
        }
        if let Some(read) = self.ack.take() {
            self.small.push_bytes(&record::ack(read));
        }
        scheduler.stage_small(&mut self.small);
        if !self.abandoned.is_empty() {
            scheduler.discard_unbegun(&self.abandoned, &mut pass.discarded);
            // The rest keeps its order.
            for frame in std::mem::take(&mut self.large) {
                if frame.is_of(&self.abandoned) {
                    pass.discarded.push(frame);
                } else {
                    self.large.push_back(frame);
                }
            }
            self.abandoned.clear();
        }
        self.sent = self.queued;
        self.staged_bytes = scheduler.small_bytes();
        self.charge_backlog();
    }

    /// Charges small frames as memory while the socket is full. Frames that pass through are not
    /// charged: it would cost every call, and they are gone at once.
    fn charge_backlog(&mut self) {
        // Also with a charge left from a full socket: it has to fall as the backlog is written.
        if self.turn == Turn::Driver(Blocked::SocketFull) || !self.backlog.is_empty() {
            self.backlog.set(self.small_bytes() as u64);
        }
    }

    /// Returns the number of unwritten bytes of small frames.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small.bytes() + self.staged_bytes
    }

    /// Returns the bytes of chunks that may be unread by the peer, while writes are paced.
    pub(crate) fn window_bytes(&self) -> Option<u64> {
        self.window.is_paced().then(|| self.window.len())
    }

    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }

    /// Returns true if something is not written yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn != Turn::Idle
    }

    /// Returns true if a small frame waits for a writer.
    pub(crate) fn has_small(&self) -> bool {
        self.small.bytes() > 0
    }

    /// Returns true if another small frame may be queued.
    pub(crate) fn has_room(&self) -> bool {
        let len = self.small_bytes();
        // A few replies always have room. Without them, one holder's full share would block even
        // its peer's short answers.
        let is_granted = len < UNCHECKED_BYTES_MAX || self.backlog.is_empty();
        len < SMALL_BYTES_MAX && (is_granted || self.backlog.may_grow())
    }

    /// Returns true if more bytes wait than a peer that reads can cause.
    pub(crate) fn is_flooded(&self) -> bool {
        self.small_bytes() > FLOOD_BYTES_MAX
    }

    /// Records that a sender waits for room.
    pub(crate) fn await_room(&mut self) {
        self.is_awaited = true;
    }

    /// Returns true if the waiting senders must be woken. Waking them is worth it for half a queue.
    pub(crate) fn takes_waiters(&mut self) -> bool {
        self.is_awaited
            && self.small_bytes() <= SMALL_BYTES_MAX / 2
            && std::mem::take(&mut self.is_awaited)
    }

    /// Begins a delivery, of one frame alone or of several. Frames gather while it is under way.
    pub(crate) fn begin_delivery(&mut self, is_alone: bool) {
        self.cork = if is_alone { Cork::Alone } else { Cork::In };
        self.queued_before = self.queued.small_count;
    }

    /// Lets frames gather.
    pub(crate) fn cork(&mut self) {
        self.cork = Cork::In;
    }

    /// Returns the number of small frames that were queued during the delivery that ends here.
    pub(crate) fn answered_count(&self) -> u64 {
        self.queued.small_count - self.queued_before
    }

    /// Records the number of tasks that the last delivery woke and that other threads may run.
    pub(crate) fn set_woken(&mut self, woken_count: u64) {
        self.defers = woken_count >= DEFERRED_COUNT_MIN;
    }

    /// Lets frames leave again. Returns true if the caller must write.
    #[must_use]
    pub(crate) fn uncork(&mut self) -> bool {
        self.cork = Cork::Out;
        let has_urgent = self.has_small() || self.ack.is_some();
        match self.turn {
            Turn::Idle | Turn::Driver(Blocked::SocketFull) => false,
            Turn::Anyone => has_urgent || !self.large.is_empty(),
            Turn::Driver(_) => has_urgent,
        }
    }

    /// Takes no more frames, and writes the queued ones. Chunks no longer wait for acks, since none
    /// is read.
    pub(crate) fn drain(&mut self) {
        if self.phase == QueuePhase::Open {
            self.phase = QueuePhase::Draining;
            self.unblock(Blocked::WindowFull);
        }
    }

    /// Takes and writes no more frames.
    ///
    /// The caller must then act as a writer, which frees the scheduler's frames and the large ones.
    /// If this side had already closed the connection, that stays the reason.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        let reason = match self.phase {
            QueuePhase::Open => reason,
            // The end of a drain is what this side asked for, even if the socket fails first.
            QueuePhase::Draining => CloseReason::Local,
            QueuePhase::Closed(_) => return,
        };
        // The turn becomes idle, so that `drive_writes` ends instead of waiting for a socket or an
        // ack.
        self.phase = QueuePhase::Closed(reason);
        (self.turn, self.cork, self.ack) = (Turn::Idle, Cork::Out, None);
        self.small.clear();
        self.staged_bytes = 0;
        self.abandoned.clear();
        self.backlog.set(0);
    }

    /// Returns the reason why no more frames are taken.
    pub(crate) fn close_reason(&self) -> Option<&CloseReason> {
        match &self.phase {
            QueuePhase::Open => None,
            QueuePhase::Draining => Some(&CloseReason::Local),
            QueuePhase::Closed(reason) => Some(reason),
        }
    }

    /// Returns true if no more frames are taken, but queued ones may still leave.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase == QueuePhase::Draining
    }

    /// Returns true if nothing will be written any more.
    pub(crate) fn is_over(&self) -> bool {
        match self.phase {
            QueuePhase::Open => false,
            QueuePhase::Draining => self.turn == Turn::Idle,
            QueuePhase::Closed(_) => true,
        }
    }

    /// Returns the counters of frames that writers have taken.
    pub(crate) fn sent(&self) -> SentCounts {
        self.sent
    }
}

/// Returns true if the record holds the last frame of an answer. Where a frame is delivered alone,
/// no other can join it.
fn ends_answer(record: &[u8]) -> bool {
    record.get(RECORD_HEADER_LEN) == Some(&FrameKind::Response.to_wire())
}

/// Returns the length of the frame in a record.
fn frame_len(record_len: usize) -> u64 {
    (record_len - RECORD_HEADER_LEN) as u64
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;
