//! What goes out: messages as credits allow, READs as the peer allows, all in one post.

use rpc_core::transport::{CloseReason, Counters};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::timers::{Timer, after};
use super::{CONTROL_SLOT_LEN, ConnectionState, Outgoing, Phase};
use crate::fair::semaphore::FairPermit;
use crate::memory::Slot;
use crate::proto::wire::{MESSAGE_HEADER_LEN, MessageHeader, MessageKind};
use crate::verbs::{PostError, Work};

/// Frames that wait while the connection is held until some are posted, so that the peer has
/// something to do meanwhile.
const CORKED_MAX: usize = 16;

impl ConnectionState {
    /// Holds back everything: slots of messages that are being handled are not posted again yet,
    /// and what goes out grants them anew.
    pub(crate) fn begin_batch(&mut self) {
        (self.is_batching, self.is_held, self.batched_frames) = (true, false, 0);
    }

    /// Keeps batching if this poll delivered several frames and nothing is queued: the woken tasks
    /// are about to send. Returns whether it does.
    pub(crate) fn hold(&mut self) -> bool {
        self.is_held = self.is_batching && self.batched_frames > 1 && self.outgoing.is_empty();
        self.is_held
    }

    /// Whether so much waits that posting it is no longer held back.
    fn is_full(&self) -> bool {
        !self.outgoing.is_empty() && self.outgoing.len().is_multiple_of(CORKED_MAX)
    }

    /// Posts as much of what waits as credits and the queue pair allow.
    pub(crate) fn flush(&mut self, counters: &Counters) -> Result<(), CloseReason> {
        let is_held_back = self.is_batching && !(self.is_held && self.is_full());
        if is_held_back || matches!(self.phase, Phase::Halting(_)) {
            return Ok(());
        }
        loop {
            let room = self.queue_pair.room();
            self.fill(room, counters);
            if let Some(error) = self.windows.failure() {
                return Err(CloseReason::Failed(format!("no memory window for an offer: {error}")));
            }
            let reads = self.read_queues.post().map_err(|error| post_failed(&error))?;
            if reads.posts > 0 {
                self.credits.activity().posts.add(reads.posts);
                if reads.must_retry {
                    self.retry_post();
                }
            }
            if self.batch.is_empty() {
                return Ok(());
            }
            let waiting_count = self.send_count();
            // What went out may have left a word to be said about it.
            let may_have_more = self.batch.len() >= room || !self.control.is_empty();
            let posted = self.queue_pair.post(&mut self.batch);
            self.credits.activity().posts.add(1);
            counters.sent_count.add((waiting_count - self.send_count()) as u64);
            match posted {
                // The queue pair held back nothing.
                Ok(_) if self.batch.is_empty() && !may_have_more => return Ok(()),
                Ok(_) if self.batch.is_empty() && self.queue_pair.room() > 0 => {}
                // A completion makes room, and its handler flushes again; if none is to come, a
                // timer tries again.
                Ok(_) => {
                    if !self.queue_pair.will_complete() {
                        self.retry_post();
                    }
                    return Ok(());
                }
                Err(error) => return Err(post_failed(&error)),
            }
        }
    }

    /// The messages in the batch. A READ is none: the peer's device answers it, and not the peer.
    fn send_count(&self) -> usize {
        self.batch.iter().filter(|work| matches!(work, Work::Send { .. })).count()
    }

    /// Moves what may go out now into the batch, which holds at most `room`: control messages, then
    /// frames, then READs, then returns, reclaims and pure grants.
    fn fill(&mut self, room: usize, counters: &Counters) {
        while self.batch.len() < room && self.fill_invalidation() {}
        while self.batch.len() < room && self.fill_control() {}
        while self.batch.len() < room && self.fill_outgoing(counters) {}
        match self.rndv_get.transfer_count() {
            0 => self.read_throttle.pass(),
            _ => self.fill_reads(room),
        }
        while self.batch.len() < room && self.credits.is_due() && self.fill_due() {}
    }

    /// READs, and the releases of transfers that were stopped instead.
    fn fill_reads(&mut self, room: usize) {
        let now = Instant::now();
        // Queue pairs for READs have room for as many as may be outstanding.
        while !self.read_queues.is_empty() || self.batch.len() < room {
            let admit = |queue, len| self.read_throttle.try_admit(queue, len, now);
            let Some(chunk) = self.rndv_get.next_chunk(now, admit) else {
                self.read_throttle.pass();
                break;
            };
            let (sink, offset) = (chunk.sink, chunk.offset);
            let read = Work::Read { sink, offset, len: chunk.len, remote: chunk.remote };
            self.batch.extend(self.read_queues.push(chunk.queue, read).err());
        }
        self.settle_stopped();
        while self.batch.len() < room && self.fill_control() {}
    }

    /// Whether a waiter is queued for that.
    #[cfg(test)]
    pub(crate) fn waits_to_read(&self) -> bool {
        self.read_throttle.is_waiting()
    }

    /// Lets the connection read on.
    pub(crate) fn grant_read(&mut self, turn: FairPermit) {
        self.read_throttle.grant(turn);
    }

    fn fill_control(&mut self) -> bool {
        let Some(&kind) = self.control.front() else { return false };
        let Some(slot) = self.control_slots.try_take() else { return false };
        let may = match kind.is_reserved() {
            true => self.credits.try_take_reserved(),
            false => self.credits.try_take(),
        };
        if may {
            self.control.pop_front();
            self.commit(kind, slot, MESSAGE_HEADER_LEN, None);
        }
        may
    }

    fn fill_outgoing(&mut self, counters: &Counters) -> bool {
        let is_offer = matches!(self.outgoing.front(), Some(Outgoing::Rts { .. }));
        if is_offer && !self.has_window() {
            // A release gives one back, and its handler flushes again.
            return false;
        }
        let control_slot = match self.outgoing.front() {
            None => return false,
            Some(Outgoing::Control(_)) => match self.control_slots.try_take() {
                // A completion gives one back, and its handler flushes again.
                None => return false,
                slot => slot,
            },
            Some(_) => None,
        };
        if !self.credits.try_take() {
            return false;
        }
        match self.outgoing.pop_front() {
            Some(Outgoing::Control(header)) => {
                let Some(mut slot) = control_slot else { return false };
                slot[MESSAGE_HEADER_LEN..CONTROL_SLOT_LEN].copy_from_slice(&header);
                self.commit(MessageKind::Frame, slot, CONTROL_SLOT_LEN, None);
            }
            Some(Outgoing::Frame { slot, len, permit }) => {
                counters.small_sent.add(1);
                counters.written_bytes.add(len as u64);
                self.commit(MessageKind::Frame, slot, MESSAGE_HEADER_LEN + len, Some(permit));
            }
            Some(Outgoing::Rts { memory, mut slot, permit, call, is_given_up }) => {
                counters.large_sent.add(1);
                counters.written_bytes.add(memory.written_len() as u64);
                let (exposed, remote) = self.expose(memory);
                let offer = exposed.buffer.describe(&slot, remote);
                let len = MESSAGE_HEADER_LEN + offer.write(&mut slot[MESSAGE_HEADER_LEN..]);
                let now = Instant::now();
                let transfer = self.offered.insert(call, exposed, now);
                self.timers.arm(Timer::Release, after(now, self.rules.timeouts.release));
                self.commit(MessageKind::Rts { transfer }, slot, len, Some(permit));
                if is_given_up {
                    self.withdraw(call);
                }
            }
            None => return false,
        }
        true
    }

    /// Moves the next return, reclaim or pure grant into the batch; false when none can go out.
    fn fill_due(&mut self) -> bool {
        let Some(slot) = self.control_slots.try_take() else { return false };
        let Some(kind) = self.credits.take_due() else { return false };
        self.commit(kind, slot, MESSAGE_HEADER_LEN, None);
        true
    }

    fn commit(
        &mut self,
        kind: MessageKind,
        mut slot: Slot,
        len: usize,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let waiting_count = self.control.len() + self.outgoing.len();
        let (epoch, grant) = (self.rules.peer_epoch, self.credits.announce(waiting_count));
        let header = MessageHeader { kind, epoch, grant };
        slot[..MESSAGE_HEADER_LEN].copy_from_slice(&header.to_bytes());
        // Slots are a few KiB long.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let invalidate = self.key_to_take(kind);
        self.batch.push_back(Work::Send { slot, len, invalidate });
        self.permits.push_back(permit);
    }
}

fn post_failed(error: &PostError) -> CloseReason {
    CloseReason::Failed(match std::error::Error::source(error) {
        Some(source) => format!("cannot post to the RDMA path: {error}: {source}"),
        None => format!("cannot post to the RDMA path: {error}"),
    })
}
