//! What senders have queued, and whose turn it is to write it.
//!
//! Free of I/O and of clocks; it stands behind a lock that is held for a few instructions at a
//! time. A task that writes holds the [`WriteScheduler`] meanwhile, asks [`SendQueue::next`] before
//! each write, and does what that says. [`Turn`] names the party that writes next.
//!
//! While the queue is *corked*, because frames of one read are being delivered, or the tasks that
//! they woke have not run yet, frames gather and go out together.

use std::collections::VecDeque;
use std::time::Instant;

use rpc_core::memory::{MemoryCharge, MemoryShare};
use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;

use crate::codec::record::{self, RECORD_HEADER_LEN, SINGLE_LEN_MAX};
use crate::pacing::chunk_len::{CHUNK_LEN_MAX, ChunkLen};
use crate::pacing::window::{SendWindow, WINDOW_MAX};
use crate::send::batch::WriteBatch;
use crate::send::frame::{Frame, LARGE_BYTES_MAX, LargeFrame, SentCounts};
use crate::send::pass::{Next, Pass, Writer};
use crate::send::scheduler::WriteScheduler;
use crate::send::turn::{Blocked, Turn};

/// A window has room for all that may wait to be written.
const _: () = assert!(WINDOW_MAX == LARGE_BYTES_MAX as u64);

/// How much is written before other tasks have their turn: a long chunk, about 0.2 ms. Shorter
/// turns wake another thread in the midst of most large messages, which costs more than it gives.
const TURN_BYTES: usize = CHUNK_LEN_MAX;

/// The bytes of small frames that a full socket may leave here although the peer's share of the
/// memory budget is used up: a few answers.
const UNCHECKED_BYTES_MAX: usize = SINGLE_LEN_MAX;

/// The bytes of small frames that may wait to be written: 64 of the longest.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * SINGLE_LEN_MAX;

/// The bytes of small frames that a peer may leave waiting. Control frames bypass
/// [`SMALL_BYTES_MAX`]: a backlog of 16 MiB of them, 380,000, means that the peer keeps sending and
/// never reads what that makes this side answer.
const FLOOD_BYTES_MAX: usize = SMALL_BYTES_MAX + (16 << 20);

/// The cancelled calls that are remembered until the next write; large frames of further ones are
/// merely sent. A peer that reads nothing may cancel as many calls as it likes.
const ABANDONED_MAX: usize = 1024;

/// The bytes that gather in a corked queue before they are written all the same: half of what 64
/// small calls are. With all of them in one write the two sides would take turns, each asleep while
/// the other works, which costs more than a write does: with this bound, 64 calls in flight are
/// twice as fast.
const CORKED_BYTES_MAX: usize = 3 << 10;

/// The number of tasks that a delivery has to wake for senders to defer their writes until the
/// next one. The connection's task lets them run first, and then writes for all of them: 64 callers
/// on two threads make 0.07 `send` calls per call this way, and 0.38 otherwise. With fewer callers
/// the detour costs more than the writes: 20 % more CPU per call at 4 in flight.
pub(crate) const DEFERRED_COUNT_MIN: u64 = 8;

/// Which frames are taken, and which are written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Closed on this side: nothing more is taken, and what is queued goes out.
    Draining,
    /// Nothing is taken, and nothing is written.
    Closed(CloseReason),
}

/// Whether frames gather.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Cork {
    #[default]
    Out,
    /// With the small frames that were queued since.
    In { frame_count: usize },
}

/// What senders touch.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    turn: Turn,
    phase: Phase,
    cork: Cork,
    /// Set while senders leave writing to the connection's task.
    defers: bool,
    /// Set by the frame that the connection's task has not been told of.
    is_driver_due: bool,
    small: WriteBatch,
    /// Large frames that have not begun.
    large: VecDeque<LargeFrame>,
    /// The calls whose large frames are not sent any more, if they have not begun.
    abandoned: Vec<u64>,
    /// The ack that has not gone out yet.
    ack: Option<u64>,
    queued: SentCounts,
    sent: SentCounts,
    window: SendWindow,
    chunk_len: ChunkLen,
    /// The bytes of small frames that the scheduler has and that are not written.
    staged_bytes: usize,
    /// What small frames count towards the process's memory: nothing while the socket takes them.
    backlog: MemoryCharge,
    /// Whether a sender waits for room.
    is_awaited: bool,
}

impl SendQueue {
    /// Has what the socket does not take counted as memory.
    pub(crate) fn count_backlog(&mut self, memory: &MemoryShare) {
        self.backlog = memory.take(0);
    }

    /// Adds a frame, of which `written_len` bytes were written into the transport's memory; true
    /// when the sender is to write.
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

    /// Adds a frame that is a short record; true when the sender is to write.
    #[must_use]
    pub(crate) fn push_record(&mut self, record: &[u8]) -> bool {
        self.queued.bytes += frame_len(record.len());
        self.push_bytes(record)
    }

    /// Returns true if nothing is queued or being written, and a sender would write at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.turn == Turn::Idle
            && self.cork == Cork::Out
            && !self.defers
            && self.phase == Phase::Open
    }

    /// Records that a sender writes a record by itself. The queue has to be idle.
    pub(crate) fn begin_alone(&mut self, record_len: usize) {
        self.turn = Turn::Anyone;
        self.queued.small_count += 1;
        self.queued.bytes += frame_len(record_len);
    }

    /// Records that all of it is written. Returns false if the sender has to go on, because more
    /// was queued meanwhile, or the connection's task has to look.
    pub(crate) fn end_alone(&mut self, pass: &Pass) -> bool {
        let is_alone = self.turn == Turn::Anyone
            && self.phase == Phase::Open
            && !pass.is_socket_full
            && self.small.bytes() == 0
            && self.large.is_empty()
            && self.ack.is_none();
        if is_alone {
            self.turn = Turn::Idle;
            self.sent = self.queued;
            self.abandoned.clear();
        }
        is_alone
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
        self.claim_turn() != Turn::Driver(Blocked::SocketFull) && self.cork == Cork::Out
    }

    /// Records an ack of the peer's; true when the connection's task can go on.
    ///
    /// # Errors
    ///
    /// When the peer cannot have read what it says.
    pub(crate) fn handle_ack(&mut self, read: u64, now: Instant) -> Result<bool, ProtocolError> {
        self.window.handle_ack(read, now)?;
        Ok(self.unblock(Blocked::WindowFull))
    }

    /// Records that the socket takes more: small frames need not wait for the connection's task any
    /// more.
    pub(crate) fn handle_writable(&mut self) {
        self.unblock(Blocked::SocketFull);
    }

    /// Gives the connection's task its turn if it waits for `blocked`, and says whether it did.
    fn unblock(&mut self, blocked: Blocked) -> bool {
        let is_blocked = self.turn == Turn::Driver(blocked);
        if is_blocked {
            self.turn = Turn::Driver(Blocked::TurnOver);
        }
        is_blocked
    }

    fn pushed_small(&mut self) -> bool {
        self.queued.small_count += 1;
        let is_long = self.small.bytes() >= CORKED_BYTES_MAX;
        if self.defers && self.turn == Turn::Idle && self.cork == Cork::Out && !is_long {
            (self.turn, self.is_driver_due) = (Turn::Driver(Blocked::Deferred), true);
        }
        let turn = self.claim_turn();
        self.charge_backlog();
        let is_full = turn == Turn::Driver(Blocked::SocketFull);
        match &mut self.cork {
            Cork::Out => !is_full && (is_long || turn != Turn::Driver(Blocked::Deferred)),
            Cork::In { frame_count } => {
                *frame_count += 1;
                !is_full && is_long
            }
        }
    }

    /// Returns true once after a frame was left to the connection's task, which the caller tells.
    pub(crate) fn takes_deferral(&mut self) -> bool {
        std::mem::take(&mut self.is_driver_due)
    }

    /// Sees that something queued is written: by anyone, unless it is another party's turn.
    fn claim_turn(&mut self) -> Turn {
        if self.turn == Turn::Idle {
            self.turn = Turn::Anyone;
        }
        self.turn
    }

    /// Records that a call was cancelled. The CANCEL would overtake its large frames that have not
    /// begun, and the peer could not know which call it means.
    pub(crate) fn abandon(&mut self, call: u64) {
        let has_room = self.abandoned.len() < ABANDONED_MAX;
        if self.is_busy() && has_room && !self.abandoned.contains(&call) {
            self.abandoned.push(call);
        }
    }

    /// Says what the writer does next, and hands the scheduler what has been queued.
    ///
    /// Unless that is to write, the writer unlocks the scheduler before this queue. A task that
    /// queues more afterwards then finds the scheduler unlocked, and what was queued before is seen
    /// here. The other way round, a frame could be left to a writer that is done.
    pub(crate) fn next(
        &mut self,
        scheduler: &mut WriteScheduler,
        pass: &mut Pass,
        now: impl Fn() -> Instant,
    ) -> Next {
        if let Phase::Closed(_) = self.phase {
            scheduler.discard_all(&mut pass.discarded);
            pass.discarded.extend(self.large.drain(..));
            return Next::Done;
        }
        if pass.is_socket_full || self.turn == Turn::Driver(Blocked::SocketFull) {
            // Another task may have filled the socket since this one was told to write. With all
            // bytes taken, a stream may still owe a flush, which the connection's task waits for.
            self.staged_bytes = scheduler.small_bytes();
            let next = self.block(Blocked::SocketFull);
            self.charge_backlog();
            return next;
        }
        if self.chunk_len.is_writing() && scheduler.is_at_boundary() {
            self.chunk_len.end(now());
        }
        self.drain_into(scheduler, pass);
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
        self.turn = Turn::Idle;
        // The connection's task waits for the end of what is drained.
        if self.phase == Phase::Draining { Next::Yield } else { Next::Done }
    }

    /// What the writer does when only chunks are left.
    fn next_chunk(
        &mut self,
        scheduler: &mut WriteScheduler,
        pass: &Pass,
        now: &impl Fn() -> Instant,
    ) -> Next {
        let is_drivers = matches!(self.turn, Turn::Driver(_));
        let is_paced = self.window.is_paced();
        // A side that closes reads no acks any more. The clock is read only when it counts.
        if self.phase == Phase::Open && is_paced && !self.window.may_send(now()) {
            return self.block(Blocked::WindowFull);
        }
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

    /// Leaves what is not written to the connection's task.
    fn block(&mut self, blocked: Blocked) -> Next {
        self.turn = Turn::Driver(blocked);
        if blocked == Blocked::WindowFull { Next::AwaitAck } else { Next::Yield }
    }

    /// Moves small frames, and the ack, to the scheduler. Discards the large frames of cancelled
    /// calls that have not begun.
    fn drain_into(&mut self, scheduler: &mut WriteScheduler, pass: &mut Pass) {
        if self.small.bytes() > 0 && scheduler.has_large() {
            self.window.handle_small();
        }
        if let Some(read) = self.ack.take() {
            self.small.push_bytes(&record::ack(read));
        }
        scheduler.stage_small(&mut self.small);
        if !self.abandoned.is_empty() {
            scheduler.discard_unbegun(&self.abandoned, &mut pass.discarded);
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

    /// Counts small frames as memory while the socket is full. What passes through is not counted:
    /// it would cost every call, and is gone at once.
    fn charge_backlog(&mut self) {
        if self.turn == Turn::Driver(Blocked::SocketFull) || !self.backlog.is_empty() {
            self.backlog.set(self.small_bytes() as u64);
        }
    }

    /// The bytes of small frames that are not written.
    fn small_bytes(&self) -> usize {
        self.small.bytes() + self.staged_bytes
    }

    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }

    /// Whether something is not written yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn != Turn::Idle
    }

    /// Whether a small frame waits for a writer.
    pub(crate) fn has_small(&self) -> bool {
        self.small.bytes() > 0
    }

    /// Whether a small frame may be queued.
    pub(crate) fn has_room(&self) -> bool {
        let len = self.small_bytes();
        let is_granted = len < UNCHECKED_BYTES_MAX || self.backlog.is_empty();
        len < SMALL_BYTES_MAX && (is_granted || self.backlog.may_grow())
    }

    /// Whether more waits than a peer can cause that reads.
    pub(crate) fn is_flooded(&self) -> bool {
        self.small_bytes() > FLOOD_BYTES_MAX
    }

    /// Records that a sender waits for room.
    pub(crate) fn await_room(&mut self) {
        self.is_awaited = true;
    }

    /// Whether the senders that wait for room are to be told: waking them is worth half a queue.
    pub(crate) fn takes_waiters(&mut self) -> bool {
        self.is_awaited
            && self.small_bytes() <= SMALL_BYTES_MAX / 2
            && std::mem::take(&mut self.is_awaited)
    }

    /// Lets frames gather.
    pub(crate) fn cork(&mut self) {
        self.cork = Cork::In { frame_count: 0 };
    }

    /// Returns true if a sender would leave its frame to the connection's task now.
    #[cfg(test)]
    pub(crate) fn is_deferring(&self) -> bool {
        self.defers && self.cork == Cork::Out
    }

    /// Records how many tasks the last delivery has woken that other threads may run.
    pub(crate) fn set_woken(&mut self, woken_count: u64) {
        self.defers = woken_count >= DEFERRED_COUNT_MIN;
    }

    /// Lets frames go out again. Says how many small ones have gathered, and whether the caller is
    /// to write.
    pub(crate) fn uncork(&mut self) -> (usize, bool) {
        let has_urgent = self.has_small() || self.ack.is_some();
        let is_to_write = match self.turn {
            Turn::Idle | Turn::Driver(Blocked::SocketFull) => false,
            Turn::Anyone => has_urgent || !self.large.is_empty(),
            Turn::Driver(_) => has_urgent,
        };
        match std::mem::take(&mut self.cork) {
            Cork::Out => (0, is_to_write),
            Cork::In { frame_count } => (frame_count, is_to_write),
        }
    }

    /// Takes nothing more, and lets out what is queued. Chunks wait for no ack any more, since none
    /// is read.
    pub(crate) fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.unblock(Blocked::WindowFull);
        }
    }

    /// Takes and writes nothing more. What the scheduler has, and large frames, the next writer
    /// frees, which the caller is to be. A connection that was closed on this side has that as its
    /// reason.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        let reason = match self.phase {
            Phase::Open => reason,
            Phase::Draining => CloseReason::Local,
            Phase::Closed(_) => return,
        };
        self.phase = Phase::Closed(reason);
        (self.turn, self.cork, self.ack) = (Turn::Idle, Cork::Out, None);
        self.small.clear();
        self.staged_bytes = 0;
        self.abandoned.clear();
        self.backlog.set(0);
    }

    /// Why nothing more is taken.
    pub(crate) fn close_reason(&self) -> Option<&CloseReason> {
        match &self.phase {
            Phase::Open => None,
            Phase::Draining => Some(&CloseReason::Local),
            Phase::Closed(reason) => Some(reason),
        }
    }

    /// Whether nothing more is taken, and what was queued may still go out.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase == Phase::Draining
    }

    /// Whether nothing will be written any more.
    pub(crate) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => self.turn == Turn::Idle,
            Phase::Closed(_) => true,
        }
    }

    /// The frames that writers have taken.
    pub(crate) fn sent(&self) -> SentCounts {
        self.sent
    }
}

/// The length of the frame in a record.
fn frame_len(record_len: usize) -> u64 {
    (record_len - RECORD_HEADER_LEN) as u64
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;
