//! Rendezvous GET: of the frames that the peer offers, which READ to post next, and when to stop.
//!
//! ```text
//!   accept ──> queued ──next_due──> asked ──begin──> reading ──last READ completed──> whole
//!                 │ stop              │ stop            │ stop, or the deadline passed
//!                 v                   v                 ├ no READ outstanding ──> ended
//!               ended               ended               └ stopping ──last completed──> ended
//! ```
//! A transfer has no memory before its first READ is about to be due: as many as READs may be
//! outstanding have memory and READs left to post, and the others are queued. So a peer that
//! answers slowly holds memory for few of the frames that it offers.
//!
//! Transfers take turns so that a long one does not hold up a short one, and at most as many READs
//! are outstanding as both devices agreed on. Where several queue pairs carry READs, each goes to
//! the one with the fewest bytes on their way, and completes there in order, but in no order with
//! those of the others. The caller that asks for a READ says whether there is room for its bytes. A
//! transfer whose READs are all posted is not stopped any more: it will be whole. Pure: what is
//! read into is an opaque value that comes back when the last READ has completed, and time is an
//! argument.

use std::collections::{HashMap, VecDeque};

use rpc_core::Deadline;
use rpc_core::transport::Withheld;
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::time::Instant;

use crate::proto::remote_memory::RemoteMemory;
use crate::proto::wire::RtsSegment;

/// A READ that should be posted now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<S> {
    /// Memory to read into.
    pub(crate) sink: S,
    /// Offset in it, in bytes.
    pub(crate) offset: usize,
    /// Length, in bytes.
    pub(crate) len: u32,
    /// From where.
    pub(crate) remote: RemoteMemory,
    /// Index of the queue pair that carries it.
    pub(crate) queue: usize,
}

/// Limits on outstanding READs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadLimits {
    /// Queues that carry them, at least one.
    pub(crate) queues: usize,
    /// On one of them.
    pub(crate) per_queue: usize,
    /// On all of them.
    pub(crate) total: usize,
}

/// A frame that is to be fetched.
#[derive(Debug)]
pub(crate) struct GetRequest {
    /// The call that it is of.
    pub(crate) call: u64,
    /// Its header.
    pub(crate) prefix: [u8; HEADER_LEN],
    /// Bytes that came with the offer, its header first.
    pub(crate) head: Vec<u8>,
    /// Deadline of the call, after which fetching stops.
    pub(crate) deadline: Option<Deadline>,
    /// Time at which the transfer is refused if it has no memory.
    pub(crate) memory_by: Deadline,
    /// Location of the remaining bytes.
    pub(crate) segments: VecDeque<RtsSegment>,
}

/// A transfer that needs memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) transfer: u32,
    /// Of the whole frame.
    pub(crate) len: u64,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) memory_by: Deadline,
}

/// A transfer that is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) transfer: u32,
    pub(crate) prefix: [u8; HEADER_LEN],
    pub(crate) outcome: Outcome,
}

/// The end of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is there.
    Whole,
    /// No READ was ever posted.
    NotStarted(Withheld),
    /// Some READs were posted, and all of them have completed.
    Stopped(Withheld),
}

impl Due {
    /// Returns the time at which it is refused if it has no memory.
    fn late_at(&self) -> Instant {
        self.deadline.map_or(self.memory_by, |deadline| deadline.min(self.memory_by)).0
    }
}

impl ReadLimits {
    /// One queue carries them all.
    pub(crate) fn one_queue(reads_max: u8) -> Self {
        let per_queue = reads_max.into();
        Self { queues: 1, per_queue, total: per_queue }
    }
}

/// The transfers that are wanted; `S` is a handle to what they are read into.
#[derive(Debug)]
pub(crate) struct RndvGet<S> {
    transfers: HashMap<u32, Transfer<S>>,
    /// Transfers whose turn to have memory has not come, in the order of their offers.
    queued: VecDeque<u32>,
    /// Number of transfers that memory is being taken for.
    asked_count: usize,
    /// Transfers that have READs left to post, in the order of their turns.
    turns: VecDeque<u32>,
    /// The transfer and the length of every READ that is posted, by queue, in the order of posting.
    posted: Vec<VecDeque<(u32, u32)>>,
    /// Transfers that ended otherwise than by their last READ.
    ended: Vec<Ended>,
    limits: ReadLimits,
    chunk_len: u32,
}

#[derive(Debug)]
struct Transfer<S> {
    wanted: GetRequest,
    memory: Memory<S>,
    /// Offset of the next READ.
    offset: usize,
    /// Bytes that have not arrived.
    missing: u64,
    outstanding: usize,
    /// Why no further READ is posted.
    stopped: Option<Withheld>,
    /// The number of segments that it began with, if each goes to the queue of its position.
    spread_over: Option<usize>,
}

/// The memory that a transfer is read into.
#[derive(Debug)]
enum Memory<S> {
    /// Its turn has not come.
    Queued,
    /// The caller takes it.
    Asked,
    Sink(S),
}

impl<S: Clone> RndvGet<S> {
    /// Fetches with READs of at most `chunk_len` bytes, as many of them outstanding as `limits`
    /// say.
    pub(crate) fn new(limits: ReadLimits, chunk_len: u32) -> Self {
        Self {
            transfers: HashMap::new(),
            queued: VecDeque::new(),
            asked_count: 0,
            turns: VecDeque::new(),
            posted: vec![VecDeque::new(); limits.queues],
            ended: Vec::new(),
            limits,
            chunk_len,
        }
    }

    /// Queues an offered frame that this side wants and has no memory for yet.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if the transfer is under way already.
    pub(crate) fn accept(
        &mut self,
        transfer: u32,
        wanted: GetRequest,
    ) -> Result<(), ProtocolError> {
        // A second offer under the number would take over the READs of the first.
        if self.transfers.contains_key(&transfer) {
            let value = transfer.into();
            return Err(ProtocolError::Invalid { what: "transfer of an offer", value });
        }
        // It does not overflow: the offer's length is the sum of its segments, and was checked.
        let missing = wanted.segments.iter().map(|segment| segment.len).sum();
        let offset = wanted.head.len();
        let memory = Memory::Queued;
        let (outstanding, stopped, spread_over) = (0, None, None);
        let entry = Transfer { wanted, memory, offset, missing, outstanding, stopped, spread_over };
        self.transfers.insert(transfer, entry);
        self.queued.push_back(transfer);
        Ok(())
    }

    /// Queues an offered frame, each of whose segments is READ on the queue of its position.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`accept`](Self::accept).
    pub(crate) fn accept_spread(
        &mut self,
        transfer: u32,
        wanted: GetRequest,
    ) -> Result<(), ProtocolError> {
        let count = wanted.segments.len();
        self.accept(transfer, wanted)?;
        let entry = self.transfers.get_mut(&transfer);
        entry.into_iter().for_each(|entry| entry.spread_over = Some(count));
        Ok(())
    }

    /// Returns true if memory should be taken for a transfer.
    pub(crate) fn has_due(&self) -> bool {
        // No more have memory than READs may be outstanding: a peer that answers slowly would hold
        // memory for every frame that it offers.
        !self.queued.is_empty() && self.asked_count + self.turns.len() < self.limits.total
    }

    /// The next transfer to take memory for, if one is due, and then to [begin](Self::begin).
    pub(crate) fn next_due(&mut self) -> Option<Due> {
        if !self.has_due() {
            return None;
        }
        let number = self.queued.pop_front()?;
        let entry = self.transfers.get_mut(&number)?;
        entry.memory = Memory::Asked;
        self.asked_count += 1;
        Some(entry.due(number))
    }

    /// The transfers that have no memory at `now`, although they should by then or their calls have
    /// ended.
    pub(crate) fn late(&self, now: Instant) -> Vec<Due> {
        let mut late: Vec<_> = self.waiting().filter(|due| due.late_at() <= now).collect();
        // The map has no order, and the same script must give the same run.
        late.sort_unstable_by_key(|due| due.transfer);
        late
    }

    /// Returns the first time at which a transfer without memory is late.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.waiting().map(|due| due.late_at()).min()
    }

    /// The transfers that have no memory.
    fn waiting(&self) -> impl Iterator<Item = Due> {
        let waiting = self.transfers.iter().filter(|(_, entry)| !entry.has_sink());
        waiting.map(|(number, entry)| entry.due(*number))
    }

    /// The head of a frame of `len` bytes whose transfer waits for memory. A peer may have taken
    /// one back and have offered another by the same number since that memory was asked for.
    pub(crate) fn head(&self, transfer: u32, len: usize) -> Option<&[u8]> {
        // Memory that comes late may meet another transfer of the same number.
        let entry = self.transfers.get(&transfer).filter(|entry| !entry.has_sink())?;
        let head = &entry.wanted.head;
        (head.len() as u64 + entry.missing == len as u64).then_some(head)
    }

    /// Starts the GET of a waiting transfer into memory that has its head; false when it has been
    /// stopped meanwhile.
    pub(crate) fn begin(&mut self, transfer: u32, sink: S) -> bool {
        match self.transfers.get_mut(&transfer) {
            Some(entry) if !entry.has_sink() => {
                match std::mem::replace(&mut entry.memory, Memory::Sink(sink)) {
                    Memory::Asked => self.asked_count -= 1,
                    // Memory that was asked for before the number was offered anew: it serves all
                    // the same, and the transfer must not be asked for again.
                    Memory::Queued | Memory::Sink(_) => self.queued.retain(|it| *it != transfer),
                }
                self.turns.push_back(transfer);
                true
            }
            _ => false,
        }
    }

    /// Returns true if a transfer still waits for memory.
    pub(crate) fn is_waiting(&self, transfer: u32) -> bool {
        self.transfers.get(&transfer).is_some_and(|entry| !entry.has_sink())
    }

    /// The next READ to post; `None` when there is none, or enough are outstanding, or `admit`
    /// rejects it; the same READ is returned next time.
    pub(crate) fn next_chunk(
        &mut self,
        now: Instant,
        mut admit: impl FnMut(usize, u32) -> bool,
    ) -> Option<Chunk<S>> {
        while let Some(free) = self.free_queue() {
            let number = self.turns.pop_front()?;
            let Some(transfer) = self.transfers.get_mut(&number) else { continue };
            // Here and not by a timer: what counts is that no READ begins after the deadline.
            if transfer.wanted.deadline.is_some_and(|deadline| deadline.has_passed(now)) {
                self.stop(number, Withheld::Expired);
                continue;
            }
            let Some(len) = transfer.next_len(self.chunk_len) else { continue };
            let queue = transfer.own_queue(self.limits.queues).unwrap_or(free);
            let is_full = self.posted[queue].len() >= self.limits.per_queue;
            if is_full || !admit(queue, len) {
                // In front: the turn is still its own, and the caller comes back when there is
                // room.
                self.turns.push_front(number);
                return None;
            }
            let Some(chunk) = transfer.next_chunk(queue, len) else { continue };
            if !transfer.wanted.segments.is_empty() {
                // Behind all others, so that a long frame lets short ones pass between its READs.
                self.turns.push_back(number);
            }
            self.posted[queue].push_back((number, chunk.len));
            return Some(chunk);
        }
        None
    }

    /// The queue for the next READ, if it may be posted.
    fn free_queue(&self) -> Option<usize> {
        if self.posted.iter().map(VecDeque::len).sum::<usize>() >= self.limits.total {
            return None;
        }
        let free = self.posted.iter().enumerate();
        let free = free.filter(|(_, posted)| posted.len() < self.limits.per_queue);
        let bytes =
            |posted: &VecDeque<_>| posted.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
        free.min_by_key(|(_, posted)| bytes(posted)).map(|(queue, _)| queue)
    }

    /// Records that the oldest READ that was posted to `queue` has completed. Gives its transfer
    /// when that is over.
    pub(crate) fn handle_read(&mut self, queue: usize) -> Option<Ended> {
        let (number, len) = self.posted.get_mut(queue)?.pop_front()?;
        let transfer = self.transfers.get_mut(&number)?;
        // By what was posted and not by what the device says: a READ completes whole or fails.
        transfer.missing -= u64::from(len);
        transfer.outstanding -= 1;
        let is_over = transfer.missing == 0 || transfer.stopped.is_some();
        // A stopped transfer is over with its last READ: until then the device writes to its sink.
        if !is_over || transfer.outstanding > 0 {
            return None;
        }
        let Transfer { wanted, stopped, .. } = self.transfers.remove(&number)?;
        let outcome = stopped.map_or(Outcome::Whole, Outcome::Stopped);
        Some(Ended { transfer: number, prefix: wanted.prefix, outcome })
    }

    /// Posts no further READ for a transfer. Once none is outstanding it has ended, which
    /// [`RndvGet::handle_read`] or [`RndvGet::take_ended`] tells. One that does not exist, is
    /// stopped already or needs no further READ is left alone.
    pub(crate) fn stop(&mut self, number: u32, why: Withheld) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        // All READs are posted: it will be whole sooner than the peer could be told otherwise.
        if transfer.wanted.segments.is_empty() || transfer.stopped.is_some() {
            return;
        }
        match transfer.memory {
            Memory::Queued => self.queued.retain(|queued| *queued != number),
            Memory::Asked => self.asked_count -= 1,
            Memory::Sink(_) => self.turns.retain(|turn| *turn != number),
        }
        if transfer.outstanding > 0 {
            transfer.stopped = Some(why);
            return;
        }
        // The peer counts what was never started as safe to send again.
        let has_read = transfer.offset > transfer.wanted.head.len();
        let prefix = transfer.wanted.prefix;
        self.transfers.remove(&number);
        let outcome = if has_read { Outcome::Stopped(why) } else { Outcome::NotStarted(why) };
        self.ended.push(Ended { transfer: number, prefix, outcome });
    }

    /// Stops every transfer of a call.
    pub(crate) fn stop_call(&mut self, call: u64, why: &Withheld) {
        let affected = self.transfers.iter().filter(|(_, entry)| entry.wanted.call == call);
        let numbers: Vec<u32> = affected.map(|(number, _)| *number).collect();
        for number in numbers {
            self.stop(number, why.clone());
        }
    }

    /// The transfers that ended by being stopped while no READ of theirs was outstanding.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the number of transfers in progress.
    pub(crate) fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    /// Forgets every transfer; READs that are posted own their sinks themselves.
    pub(crate) fn clear(&mut self) {
        self.transfers.clear();
        self.queued.clear();
        self.asked_count = 0;
        self.turns.clear();
        self.ended.clear();
    }
}

impl<S> Transfer<S> {
    fn has_sink(&self) -> bool {
        matches!(self.memory, Memory::Sink(_))
    }

    /// The queue of its next segment, if that may use no other.
    fn own_queue(&self, queues: usize) -> Option<usize> {
        let begun = self.spread_over?.saturating_sub(self.wanted.segments.len());
        Some(begun % queues.max(1))
    }

    /// Returns the memory that it needs before its first READ.
    fn due(&self, transfer: u32) -> Due {
        let GetRequest { head, deadline, memory_by, .. } = &self.wanted;
        let len = (head.len() as u64).saturating_add(self.missing);
        Due { transfer, len, deadline: *deadline, memory_by: *memory_by }
    }
}

impl<S: Clone> Transfer<S> {
    fn next_len(&self, chunk_len: u32) -> Option<u32> {
        let segment = self.wanted.segments.front()?;
        Some(u32::try_from(segment.len).unwrap_or(u32::MAX).min(chunk_len))
    }

    /// The next `len` bytes, which are no more than are left of the segment.
    fn next_chunk(&mut self, queue: usize, len: u32) -> Option<Chunk<S>> {
        let Memory::Sink(sink) = &self.memory else { return None };
        let sink = sink.clone();
        let segment = self.wanted.segments.front_mut()?;
        let (offset, remote) = (self.offset, segment.memory);
        self.offset += len as usize;
        self.outstanding += 1;
        segment.len -= u64::from(len);
        // An address that would wrap cannot be read anyway: the device refuses the READ.
        segment.memory.address = segment.memory.address.wrapping_add(len.into());
        if segment.len == 0 {
            self.wanted.segments.pop_front();
        }
        Some(Chunk { sink, offset, len, remote, queue })
    }
}

#[cfg(test)]
#[path = "get_tests.rs"]
mod tests;
