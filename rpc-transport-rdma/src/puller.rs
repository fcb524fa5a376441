//! The frames that the peer offers and this side wants: which READ to post next, and when to stop.
//!
//! ```text
//!   accept ──> waiting ──begin──> pulling ──last READ completed──> whole
//!                 │ stop             │ stop, or the deadline passed
//!                 v                  ├ no READ outstanding ──> ended
//!               ended                └ stopping ──last of them completed──> ended
//! ```
//! Transfers take turns so that a long one does not hold up a short one, and at most as many READs
//! are outstanding as both devices agreed on. Where several queue pairs carry READs, each goes to
//! the one with the fewest bytes on their way, and completes there in order, but in no order with
//! those of the others. Whoever asks for a READ says whether there is room for its bytes. A
//! transfer whose READs are all posted is not stopped any more: it will be whole.
//! Pure: what is read into is an opaque value that comes back when the last READ has completed, and
//! time is an argument.

use std::collections::{HashMap, VecDeque};

use rpc_core::Deadline;
use rpc_core::transport::Withheld;
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::time::Instant;

use crate::message::OfferedSegment;
use crate::verbs::RemoteMemory;

/// A READ that should be posted now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<S> {
    /// What to read into.
    pub(crate) sink: S,
    /// Where in it.
    pub(crate) offset: usize,
    /// How much.
    pub(crate) len: u32,
    /// From where.
    pub(crate) remote: RemoteMemory,
    /// Which of the queues carries it.
    pub(crate) queue: usize,
}

/// How many READs may be outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadLimits {
    /// Queues that carry them, at least one.
    pub(crate) queues: usize,
    /// On one of them.
    pub(crate) of_queue: usize,
    /// On all of them.
    pub(crate) total: usize,
}

/// A frame that is to be pulled.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The call that it is of.
    pub(crate) call: u64,
    /// Its header.
    pub(crate) prefix: [u8; HEADER_LEN],
    /// What came with the offer, its header first.
    pub(crate) head: Vec<u8>,
    /// When to stop pulling it.
    pub(crate) deadline: Option<Deadline>,
    /// Where the rest lies.
    pub(crate) segments: VecDeque<OfferedSegment>,
}

/// A transfer that is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) transfer: u32,
    pub(crate) prefix: [u8; HEADER_LEN],
    pub(crate) outcome: Outcome,
}

/// How a transfer ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is there.
    Whole,
    /// No READ was ever posted.
    NotStarted(Withheld),
    /// Some READs were posted, and all of them have completed.
    Stopped(Withheld),
}

impl ReadLimits {
    /// One queue carries them all.
    pub(crate) fn one_queue(reads_max: u8) -> Self {
        let of_queue = reads_max.into();
        Self { queues: 1, of_queue, total: of_queue }
    }
}

/// The transfers that are wanted; `S` is a handle to what they are read into.
#[derive(Debug)]
pub(crate) struct Puller<S> {
    transfers: HashMap<u32, Transfer<S>>,
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
    wanted: Wanted,
    /// `None` while it waits for memory.
    sink: Option<S>,
    /// Where the next READ goes.
    offset: usize,
    /// Bytes that have not arrived.
    missing: u64,
    outstanding: usize,
    /// Why no further READ is posted.
    stopped: Option<Withheld>,
}

impl<S: Clone> Puller<S> {
    /// Pulls with READs of at most `chunk_len` bytes, as many of them outstanding as `limits` say.
    pub(crate) fn new(limits: ReadLimits, chunk_len: u32) -> Self {
        Self {
            transfers: HashMap::new(),
            turns: VecDeque::new(),
            posted: vec![VecDeque::new(); limits.queues],
            ended: Vec::new(),
            limits,
            chunk_len,
        }
    }

    /// Takes note of an offered frame that this side wants and has no memory for yet.
    ///
    /// # Errors
    ///
    /// When the transfer is under way already.
    pub(crate) fn accept(&mut self, transfer: u32, wanted: Wanted) -> Result<(), ProtocolError> {
        if self.transfers.contains_key(&transfer) {
            let value = transfer.into();
            return Err(ProtocolError::Invalid { what: "transfer of an offer", value });
        }
        let missing = wanted.segments.iter().map(|segment| segment.len).sum();
        let offset = wanted.head.len();
        let entry = Transfer { wanted, sink: None, offset, missing, outstanding: 0, stopped: None };
        self.transfers.insert(transfer, entry);
        Ok(())
    }

    /// The head of the frame of a transfer that waits for memory.
    pub(crate) fn head(&self, transfer: u32) -> Option<&[u8]> {
        let entry = self.transfers.get(&transfer).filter(|entry| entry.sink.is_none())?;
        Some(&entry.wanted.head)
    }

    /// Begins to pull a waiting transfer into memory that has its head; false when it has been
    /// stopped meanwhile.
    pub(crate) fn begin(&mut self, transfer: u32, sink: S) -> bool {
        match self.transfers.get_mut(&transfer) {
            Some(entry) if entry.sink.is_none() => {
                entry.sink = Some(sink);
                self.turns.push_back(transfer);
                true
            }
            _ => false,
        }
    }

    /// Whether a transfer still waits for memory.
    pub(crate) fn is_waiting(&self, transfer: u32) -> bool {
        self.transfers.get(&transfer).is_some_and(|entry| entry.sink.is_none())
    }

    /// The next READ to post; `None` when there is none, or enough are outstanding, or `admit` does
    /// not take one of its length for its queue, in which case it is the next one again.
    pub(crate) fn next_chunk(
        &mut self,
        now: Instant,
        mut admit: impl FnMut(usize, u32) -> bool,
    ) -> Option<Chunk<S>> {
        while let Some(queue) = self.free_queue() {
            let number = self.turns.pop_front()?;
            let Some(transfer) = self.transfers.get_mut(&number) else { continue };
            if transfer.wanted.deadline.is_some_and(|deadline| deadline.has_passed(now)) {
                self.stop(number, Withheld::Expired);
                continue;
            }
            let Some(len) = transfer.next_len(self.chunk_len) else { continue };
            if !admit(queue, len) {
                self.turns.push_front(number);
                return None;
            }
            let Some(chunk) = transfer.next_chunk(queue, len) else { continue };
            if !transfer.wanted.segments.is_empty() {
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
        let free = free.filter(|(_, posted)| posted.len() < self.limits.of_queue);
        let bytes =
            |posted: &VecDeque<_>| posted.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
        free.min_by_key(|(_, posted)| bytes(posted)).map(|(queue, _)| queue)
    }

    /// Takes note that the oldest READ that was posted to `queue` has completed. Gives its transfer
    /// when that is over.
    pub(crate) fn handle_read(&mut self, queue: usize) -> Option<Ended> {
        let (number, len) = self.posted.get_mut(queue)?.pop_front()?;
        let transfer = self.transfers.get_mut(&number)?;
        transfer.missing -= u64::from(len);
        transfer.outstanding -= 1;
        let is_over = transfer.missing == 0 || transfer.stopped.is_some();
        if !is_over || transfer.outstanding > 0 {
            return None;
        }
        let Transfer { wanted, stopped, .. } = self.transfers.remove(&number)?;
        let outcome = stopped.map_or(Outcome::Whole, Outcome::Stopped);
        Some(Ended { transfer: number, prefix: wanted.prefix, outcome })
    }

    /// Posts no further READ for a transfer. Once none is outstanding it has ended, which
    /// [`Puller::handle_read`] or [`Puller::take_ended`] tells. One that does not exist, is stopped
    /// already or needs no further READ is left alone.
    pub(crate) fn stop(&mut self, number: u32, why: Withheld) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        if transfer.wanted.segments.is_empty() || transfer.stopped.is_some() {
            return;
        }
        self.turns.retain(|turn| *turn != number);
        if transfer.outstanding > 0 {
            transfer.stopped = Some(why);
            return;
        }
        let has_read = transfer.offset > transfer.wanted.head.len();
        let prefix = transfer.wanted.prefix;
        self.transfers.remove(&number);
        let outcome = if has_read { Outcome::Stopped(why) } else { Outcome::NotStarted(why) };
        self.ended.push(Ended { transfer: number, prefix, outcome });
    }

    /// Stops every transfer of a call.
    pub(crate) fn stop_call(&mut self, call: u64, why: &Withheld) {
        let of_call = self.transfers.iter().filter(|(_, entry)| entry.wanted.call == call);
        let numbers: Vec<u32> = of_call.map(|(number, _)| *number).collect();
        for number in numbers {
            self.stop(number, why.clone());
        }
    }

    /// The transfers that ended by being stopped while no READ of theirs was outstanding.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// How many transfers are under way.
    pub(crate) fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    /// Forgets every transfer; READs that are posted own their sinks themselves.
    pub(crate) fn clear(&mut self) {
        self.transfers.clear();
        self.turns.clear();
        self.ended.clear();
    }
}

impl<S: Clone> Transfer<S> {
    fn next_len(&self, chunk_len: u32) -> Option<u32> {
        let segment = self.wanted.segments.front()?;
        Some(u32::try_from(segment.len).unwrap_or(u32::MAX).min(chunk_len))
    }

    /// The next `len` bytes, which are no more than are left of the segment.
    fn next_chunk(&mut self, queue: usize, len: u32) -> Option<Chunk<S>> {
        let sink = self.sink.clone()?;
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
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::verbs::RemoteKey;

    fn wanted(call: u64, segments: &[(u64, u64)]) -> Wanted {
        let segment = |(address, len): &(u64, u64)| OfferedSegment {
            memory: RemoteMemory { address: *address, key: RemoteKey(1) },
            len: *len,
        };
        let segments = segments.iter().map(segment).collect();
        Wanted { call, prefix: [0; HEADER_LEN], head: Vec::new(), deadline: None, segments }
    }

    fn started<S: Clone>(puller: &mut Puller<S>, number: u32, len: u64, sink: S) {
        puller.accept(number, wanted(number.into(), &[(u64::from(number) * 100, len)])).unwrap();
        assert!(puller.begin(number, sink));
    }

    fn outcome(ended: Ended) -> (u32, Outcome) {
        (ended.transfer, ended.outcome)
    }

    #[test]
    fn transfers_take_turns_and_the_depth_is_kept() {
        let now = Instant::now();
        let mut puller = Puller::new(ReadLimits::one_queue(3), 10);
        started(&mut puller, 1, 25, 'a');
        started(&mut puller, 5, 25, 'b');
        let chunks: Vec<_> = std::iter::from_fn(|| puller.next_chunk(now, |_, _| true)).collect();
        let order: Vec<_> = chunks.iter().map(|chunk| (chunk.sink, chunk.offset)).collect();
        assert_eq!(order, [('a', 0), ('b', 0), ('a', 10)]);
        assert_eq!(chunks[2].remote.address, 110);
        assert_eq!(puller.handle_read(0), None);
        assert_eq!(puller.next_chunk(now, |_, _| true).map(|chunk| chunk.sink), Some('b'));
    }

    #[test]
    fn a_read_goes_where_the_fewest_bytes_are_on_their_way() {
        let now = Instant::now();
        let limits = ReadLimits { queues: 2, of_queue: 2, total: 3 };
        let mut puller = Puller::new(limits, 100);
        for (number, len) in [(1, 100), (2, 10), (3, 10), (4, 10), (5, 10)] {
            started(&mut puller, number, len, number);
        }
        let next = |puller: &mut Puller<u32>| {
            puller.next_chunk(now, |_, _| true).map(|chunk| (chunk.sink, chunk.queue))
        };
        let ended = |puller: &mut Puller<u32>, queue| puller.handle_read(queue).map(outcome);
        let posted = [(); 4].map(|()| next(&mut puller));
        assert_eq!(posted, [Some((1, 0)), Some((2, 1)), Some((3, 1)), None], "three are out");
        assert_eq!(ended(&mut puller, 1), Some((2, Outcome::Whole)), "before the first");
        assert_eq!(next(&mut puller), Some((4, 1)));
        assert_eq!(ended(&mut puller, 1), Some((3, Outcome::Whole)));
        assert_eq!(ended(&mut puller, 0), Some((1, Outcome::Whole)));
        assert_eq!(ended(&mut puller, 0), None, "nothing is out there");
        assert_eq!(next(&mut puller), Some((5, 0)));
    }

    #[test]
    fn a_transfer_that_is_offered_twice_is_a_violation() {
        let mut puller = Puller::new(ReadLimits::one_queue(1), 10);
        started(&mut puller, 1, 5, ());
        assert!(puller.accept(1, wanted(1, &[(0, 5)])).is_err());
    }

    #[test]
    fn what_waits_for_memory_is_stopped_at_once_and_never_begins() {
        let mut puller = Puller::new(ReadLimits::one_queue(1), 10);
        puller.accept(1, wanted(7, &[(0, 5)])).unwrap();
        puller.stop_call(7, &Withheld::GivenUp);
        assert!(!puller.is_waiting(1) && !puller.begin(1, ()));
        let ended: Vec<_> = puller.take_ended().into_iter().map(outcome).collect();
        assert_eq!(ended, [(1, Outcome::NotStarted(Withheld::GivenUp))]);
    }

    #[test]
    fn a_stopped_transfer_ends_with_the_reads_that_are_out() {
        let now = Instant::now();
        let mut puller = Puller::new(ReadLimits::one_queue(2), 10);
        started(&mut puller, 1, 50, ());
        let reads: Vec<_> = std::iter::from_fn(|| puller.next_chunk(now, |_, _| true)).collect();
        assert_eq!(reads.len(), 2);
        puller.stop(1, Withheld::GivenUp);
        assert_eq!((puller.handle_read(0), puller.next_chunk(now, |_, _| true)), (None, None));
        let ended = puller.handle_read(0).map(outcome);
        assert_eq!(ended, Some((1, Outcome::Stopped(Withheld::GivenUp))));
        assert_eq!(puller.transfer_count(), 0);
    }

    #[test]
    fn a_transfer_whose_reads_are_all_posted_becomes_whole() {
        let now = Instant::now();
        let mut puller = Puller::new(ReadLimits::one_queue(2), 10);
        started(&mut puller, 1, 20, ());
        while puller.next_chunk(now, |_, _| true).is_some() {}
        puller.stop(1, Withheld::GivenUp);
        assert_eq!(puller.handle_read(0), None);
        assert_eq!(puller.handle_read(0).map(outcome), Some((1, Outcome::Whole)));
    }

    #[test]
    fn no_read_is_posted_after_the_deadline() {
        let now = Instant::now();
        let mut puller = Puller::new(ReadLimits::one_queue(1), 10);
        let deadline = Some(Deadline(now + Duration::from_secs(1)));
        for number in [1, 2] {
            puller.accept(number, Wanted { deadline, ..wanted(1, &[(0, 20)]) }).unwrap();
        }
        assert!(puller.begin(1, ()) && puller.next_chunk(now, |_, _| true).is_some());
        assert!(puller.begin(2, ()));
        let late = now + Duration::from_secs(1);
        assert_eq!(puller.handle_read(0), None);
        assert_eq!(puller.next_chunk(late, |_, _| true), None);
        let ended: Vec<_> = puller.take_ended().into_iter().map(outcome).collect();
        assert_eq!(
            ended,
            [(1, Outcome::Stopped(Withheld::Expired)), (2, Outcome::NotStarted(Withheld::Expired)),]
        );
    }

    #[test]
    fn a_frame_beyond_four_gibibytes_is_read_whole() {
        const CHUNK: u32 = 1 << 26;
        let now = Instant::now();
        let mut puller = Puller::new(ReadLimits::one_queue(16), CHUNK);
        let lens = [1, 5 << 30, (4 << 30) + 7];
        let segments: Vec<_> = lens.iter().map(|len| (1 << 40, *len)).collect();
        puller.accept(1, wanted(1, &segments)).unwrap();
        assert!(puller.begin(1, ()));
        let (mut read, mut ended) = (0u64, None);
        while ended.is_none() {
            while let Some(chunk) = puller.next_chunk(now, |_, _| true) {
                assert_eq!(chunk.offset as u64, read);
                assert!(chunk.len <= CHUNK);
                let of_segment = match read {
                    0 => 0,
                    _ if read <= 5 << 30 => read - 1,
                    _ => read - 1 - (5 << 30),
                };
                assert_eq!(chunk.remote.address, (1 << 40) + of_segment);
                read += u64::from(chunk.len);
            }
            ended = puller.handle_read(0);
        }
        assert_eq!((read, ended.map(outcome)), (lens.iter().sum(), Some((1, Outcome::Whole))));
    }

    proptest! {
        #[test]
        fn every_byte_is_read_once_and_every_transfer_ends_once(
            lens in prop::collection::vec(prop::collection::vec(1u64..50, 1..4), 1..6),
            stops in prop::collection::vec((0u32..6, 0usize..40), 0..4),
            queues in 1usize..4,
            of_queue in 1usize..5,
            chunk_len in 1u32..20,
            mut order in prop::collection::vec(0usize..4, 0..40),
        ) {
            let now = Instant::now();
            let limits = ReadLimits { queues, of_queue, total: queues + of_queue };
            let mut puller = Puller::new(limits, chunk_len);
            for (number, lens) in (0u32..).zip(&lens) {
                let segments: Vec<_> = lens.iter().map(|len| (0, *len)).collect();
                puller.accept(number, wanted(number.into(), &segments)).unwrap();
                prop_assert!(puller.begin(number, number as usize));
            }
            let mut read = vec![0; lens.len()];
            let mut ended = Vec::new();
            let mut outstanding = vec![VecDeque::new(); queues];
            for step in 0.. {
                for (number, _) in stops.iter().filter(|(_, at)| *at == step) {
                    puller.stop(*number, Withheld::GivenUp);
                }
                ended.extend(puller.take_ended());
                while let Some(chunk) = puller.next_chunk(now, |_, _| true) {
                    prop_assert_eq!(chunk.offset, read[chunk.sink]);
                    read[chunk.sink] += chunk.len as usize;
                    outstanding[chunk.queue].push_back(chunk.sink);
                    prop_assert!(outstanding[chunk.queue].len() <= of_queue);
                    prop_assert!(outstanding.iter().flatten().count() <= limits.total);
                }
                // Each queue completes in its own order, and they in any.
                let first = order.pop().unwrap_or(0);
                let mut in_turn = (0..queues).map(|i| (first + i) % queues);
                let Some(queue) = in_turn.find(|queue| !outstanding[*queue].is_empty()) else {
                    break;
                };
                let sink = outstanding[queue].pop_front().unwrap();
                if let Some(over) = puller.handle_read(queue) {
                    prop_assert_eq!(over.transfer as usize, sink);
                    let is_out = outstanding.iter().flatten().any(|other| *other == sink);
                    prop_assert!(!is_out, "a READ is out");
                    ended.push(over);
                }
            }
            let mut numbers: Vec<_> = ended.iter().map(|over| over.transfer).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..).take(lens.len()).collect::<Vec<u32>>());
            for over in &ended {
                let len: u64 = lens[over.transfer as usize].iter().sum();
                let is_whole = read[over.transfer as usize] as u64 == len;
                prop_assert_eq!(is_whole, over.outcome == Outcome::Whole);
            }
            prop_assert_eq!(puller.transfer_count(), 0);
        }
    }
}
