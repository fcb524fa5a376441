//! The order in which frames are written.
//!
//! Small frames leave in order, before any chunk that is not yet staged. Large frames take turns,
//! chunk by chunk. Only one chunk is staged at a time, so a small frame waits for at most one. Free
//! of I/O: a writer asks for slices and reports how many bytes it wrote.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::codec::record::{
    FRAME_LEN_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind, TRANSFERS_MAX,
};
use crate::send::batch::{self, Segment, WriteBatch};
use crate::send::frame::LargeFrame;

/// Maximum number of slices per write. More gain nothing measurable.
const SLICES_MAX: usize = 64;

/// A large frame that is sent in chunks.
#[derive(Debug)]
struct Transfer {
    number: u32,
    frame: LargeFrame,
    /// Number of staged bytes of the frame.
    at: usize,
}

impl Transfer {
    fn left(&self) -> usize {
        self.frame.len() - self.at
    }
}

/// The staged chunk, which belongs to the first transfer.
#[derive(Debug)]
struct Chunk {
    /// The record's header. For a first chunk, it includes the frame's length.
    header: ArrayVec<u8, { RECORD_HEADER_LEN + FRAME_LEN_LEN }>,
    /// The chunk's range in the frame.
    range: Range<usize>,
}

impl Chunk {
    fn record_len(&self) -> usize {
        self.header.len() + self.range.len()
    }

    /// Returns the chunk's bytes in order: the header, and its parts of the frame's head and tail.
    fn parts<'a>(&'a self, frame: &'a LargeFrame) -> [&'a [u8]; 3] {
        let (head, tail) = (frame.head(), &frame.tail[..]);
        let Range { start, end } = self.range;
        let in_head = start.min(head.len())..end.min(head.len());
        let in_tail = start.saturating_sub(head.len())..end.saturating_sub(head.len());
        [&self.header, &head[in_head], &tail[in_tail]]
    }
}

/// The frames that a writer has taken from the queue.
#[derive(Debug, Default)]
pub(crate) struct WriteScheduler {
    /// Large frames that have begun or may begin, in the order of their turns.
    transfers: VecDeque<Transfer>,
    transfer_count: u32,
    chunk: Option<Chunk>,
    /// Small frames after the staged chunk.
    small: VecDeque<Segment>,
    /// Written bytes of the first item: the staged chunk or, without one, a segment.
    written: usize,
    /// Bytes of small frames that are staged.
    small_bytes: usize,
}

impl WriteScheduler {
    /// Stages the small frames of a batch, after everything that is already staged.
    pub(crate) fn stage_small(&mut self, batch: &mut WriteBatch) {
        while let Some(segment) = batch.pop() {
            self.small_bytes += segment.bytes().len();
            self.small.push_back(segment);
        }
    }

    /// Stages the rest of a partly written record before everything else. Nothing else may be
    /// staged.
    pub(crate) fn stage_rest(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.small_bytes += rest.len();
            self.small.push_back(Segment::Gathered(rest.to_vec()));
        }
    }

    /// Moves the large frames of these calls to `discarded`, unless the peer already knows them.
    pub(crate) fn discard_unbegun(&mut self, calls: &[u64], discarded: &mut Vec<LargeFrame>) {
        for transfer in std::mem::take(&mut self.transfers) {
            // The peer has seen part of this frame, and its transfer must end.
            if transfer.at > 0 || !transfer.frame.is_of(calls) {
                self.transfers.push_back(transfer);
            } else {
                discarded.push(transfer.frame);
            }
        }
    }

    /// Drops everything staged, and moves the large frames to `discarded`.
    pub(crate) fn discard_all(&mut self, discarded: &mut Vec<LargeFrame>) {
        let scheduler = std::mem::take(self);
        discarded.extend(scheduler.transfers.into_iter().map(|transfer| transfer.frame));
    }

    /// Returns true if nothing is staged. The next chunk may then be, if large frames are left.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.chunk.is_none() && self.small.is_empty()
    }

    /// Returns the number of unwritten bytes of small frames.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small_bytes
    }

    /// Returns the next slices to write, in order. Empty if nothing is staged.
    pub(crate) fn slices(&self) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
        let mut slices = ArrayVec::new();
        let mut skip = self.written;
        if let (Some(chunk), Some(transfer)) = (&self.chunk, self.transfers.front()) {
            for part in chunk.parts(&transfer.frame) {
                if skip < part.len() {
                    slices.push(IoSlice::new(&part[skip..]));
                }
                skip = skip.saturating_sub(part.len());
            }
        }
        // Only the first item can be partly written, so `skip` is zero after it.
        for segment in self.small.iter().take(SLICES_MAX - slices.len()) {
            slices.push(IoSlice::new(&segment.bytes()[skip..]));
            skip = 0;
        }
        slices
    }

    /// Records that `len` bytes of the slices were written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.written += len;
        if let Some(chunk) = &self.chunk {
            // A write may stop anywhere, also inside the chunk's header. Nothing may be staged
            // before the rest.
            if self.written < chunk.record_len() {
                return;
            }
            self.written -= chunk.record_len();
            self.chunk = None;
            // The frame may end here, which returns its share of the budgets.
            self.end_turn();
        }
        while let Some(first) = self.small.front() {
            let first_len = first.bytes().len();
            if self.written < first_len {
                break;
            }
            self.written -= first_len;
            self.small_bytes -= first_len;
            if let Some(Segment::Gathered(memory)) = self.small.pop_front() {
                batch::keep(memory);
            }
        }
    }

    /// Returns true if chunks of large frames are still to be staged.
    pub(crate) fn has_large(&self) -> bool {
        self.transfers.iter().any(|transfer| transfer.left() > 0)
    }

    /// Stages the next chunk of a large frame, of at most `len_max` bytes, and returns its length.
    ///
    /// Waiting frames begin as far as the peer allows. Call it only if nothing else is staged, so
    /// that small frames queued meanwhile leave first.
    pub(crate) fn stage_chunk(
        &mut self,
        waiting: &mut VecDeque<LargeFrame>,
        len_max: usize,
        wants_ack: bool,
    ) -> usize {
        while self.transfers.len() < TRANSFERS_MAX
            && let Some(frame) = waiting.pop_front()
        {
            // A number may repeat after 4 billion frames. The peer has long seen the end of its
            // first use.
            self.transfer_count = self.transfer_count.wrapping_add(1);
            self.transfers.push_back(Transfer { number: self.transfer_count, frame, at: 0 });
        }
        let Some(transfer) = self.transfers.front_mut() else { return 0 };
        let len = transfer.left().min(len_max);
        let header = chunk_header(transfer, len, wants_ack);
        self.chunk = Some(Chunk { header, range: transfer.at..transfer.at + len });
        transfer.at += len;
        len
    }

    /// Moves the first transfer to the end of the line, or frees its frame if it is completely
    /// written.
    fn end_turn(&mut self) {
        if let Some(transfer) = self.transfers.pop_front()
            && transfer.left() > 0
        {
            self.transfers.push_back(transfer);
        }
    }
}

fn chunk_header(
    transfer: &Transfer,
    len: usize,
    wants_ack: bool,
) -> ArrayVec<u8, { RECORD_HEADER_LEN + FRAME_LEN_LEN }> {
    let frame_len = (transfer.frame.len() as u64).to_le_bytes();
    let (kind, frame_len) = match transfer.at {
        0 => (RecordKind::First, &frame_len[..]),
        _ => (RecordKind::Next, &[][..]),
    };
    let len = len + frame_len.len();
    let header = RecordHeader { kind, len, transfer: transfer.number, wants_ack }.to_bytes();
    header.iter().chain(frame_len).copied().collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rpc_core::pool::Pool;
    use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};

    use super::*;
    use crate::pacing::chunk_len::CHUNK_LEN_MIN;
    use crate::send::frame::LargeShare;

    /// A scheduler with the large frames that wait for it.
    #[derive(Default)]
    struct Sending {
        scheduler: WriteScheduler,
        waiting: VecDeque<LargeFrame>,
    }

    impl Sending {
        fn stage_chunk(&mut self) -> usize {
            self.scheduler.stage_chunk(&mut self.waiting, CHUNK_LEN_MIN, false)
        }

        fn stage_small(&mut self, len: usize, fill: u8) {
            let mut batch = WriteBatch::default();
            batch.push_bytes(&vec![fill; len]);
            self.scheduler.stage_small(&mut batch);
        }

        /// Writes everything, at most `step` bytes at a time.
        fn drain(&mut self, step: usize) -> Vec<u8> {
            let mut out = Vec::new();
            loop {
                if self.scheduler.is_at_boundary() && self.stage_chunk() == 0 {
                    assert!(!self.scheduler.has_large());
                    return out;
                }
                let mut room = step;
                for slice in self.scheduler.slices() {
                    let len = slice.len().min(room);
                    out.extend_from_slice(&slice[..len]);
                    room -= len;
                }
                self.scheduler.advance(step - room);
            }
        }

        fn discard(&mut self, calls: &[u64]) -> usize {
            let mut discarded = Vec::new();
            self.scheduler.discard_unbegun(calls, &mut discarded);
            discarded.len()
        }
    }

    fn large(head_len: usize, tail_len: usize, fill: u8) -> LargeFrame {
        let mut head = Pool::new(0).take(RECORD_HEADER_LEN + head_len);
        head.fill(fill);
        LargeFrame::new(head, vec![fill; tail_len].into(), LargeShare::unlimited())
    }

    #[test]
    fn a_small_frame_overtakes_unstaged_chunks() {
        let mut sending = Sending::default();
        sending.waiting.push_back(large(10 * CHUNK_LEN_MIN, 0, 1));
        assert_eq!(sending.stage_chunk(), CHUNK_LEN_MIN);
        sending.stage_small(100, 0xee);
        assert_eq!(sending.scheduler.small_bytes(), 100);
        let bytes = sending.drain(1000);
        let at = bytes.iter().position(|byte| *byte == 0xee).unwrap();
        assert_eq!(at, RECORD_HEADER_LEN + FRAME_LEN_LEN + CHUNK_LEN_MIN);
        assert_eq!(sending.scheduler.small_bytes(), 0);
    }

    #[test]
    fn only_large_frames_without_a_staged_chunk_are_discarded() {
        let of = |call: u64| {
            let mut head = Pool::new(0).take(RECORD_HEADER_LEN + 3 * CHUNK_LEN_MIN);
            let header = FrameHeader::bare(FrameKind::Request, call).to_bytes();
            head[RECORD_HEADER_LEN..][..HEADER_LEN].copy_from_slice(&header);
            LargeFrame::new(head, Bytes::new(), LargeShare::unlimited())
        };
        let mut sending = Sending::default();
        // All have numbers by now, and the first of call 7 has its turn.
        sending.waiting.extend([of(7), of(9), of(8), of(7), large(40, 0, 3)]);
        sending.stage_chunk();
        assert_eq!(sending.discard(&[]), 0);
        assert_eq!(sending.discard(&[7, 9]), 2);
        assert_eq!(sending.discard(&[7, 9]), 0);
        let calls_7_and_8 = 2 * (3 * (CHUNK_LEN_MIN + RECORD_HEADER_LEN) + FRAME_LEN_LEN);
        let other_frames = 40 + RECORD_HEADER_LEN + FRAME_LEN_LEN;
        assert_eq!(sending.drain(1000).len(), calls_7_and_8 + other_frames);
    }

    #[test]
    fn large_frames_take_turns() {
        let mut sending = Sending::default();
        sending.waiting.extend([1, 2].map(|fill| large(3 * CHUNK_LEN_MIN, 0, fill)));
        let bytes = sending.drain(usize::MAX / 2);
        let chunk = CHUNK_LEN_MIN + RECORD_HEADER_LEN;
        let first = RECORD_HEADER_LEN + FRAME_LEN_LEN;
        assert_eq!(bytes[first], 1);
        assert_eq!(bytes[first + chunk + FRAME_LEN_LEN], 2);
        assert_eq!(bytes[first + 2 * chunk + FRAME_LEN_LEN], 1);
    }

    #[test]
    fn a_large_frame_stays_until_its_last_chunk_is_staged() {
        let mut sending = Sending::default();
        sending.waiting.push_back(large(2 * CHUNK_LEN_MIN, 0, 1));
        assert!(!sending.scheduler.has_large());
        for is_left in [true, false] {
            assert_eq!(sending.stage_chunk(), CHUNK_LEN_MIN);
            assert_eq!(sending.scheduler.has_large(), is_left);
            let len = sending.scheduler.slices().iter().map(|slice| slice.len()).sum();
            sending.scheduler.advance(len);
        }
    }

    #[test]
    fn concurrent_large_frames_are_limited() {
        let mut sending = Sending::default();
        sending.waiting.extend((0..20).map(|fill| large(2 * CHUNK_LEN_MIN, 0, fill)));
        sending.stage_chunk();
        assert_eq!((sending.scheduler.transfers.len(), sending.waiting.len()), (TRANSFERS_MAX, 4));
        let left = sending.waiting.len();
        sending.drain(usize::MAX / 2);
        assert_eq!((left, sending.waiting.len()), (4, 0));
    }

    #[test]
    fn any_size_of_write_yields_the_same_bytes() {
        let make = |head_len, tail_len| {
            let mut sending = Sending::default();
            sending.waiting.push_back(large(head_len, tail_len, 1));
            sending.stage_small(40, 2);
            sending
        };
        let len = 2 * CHUNK_LEN_MIN + 7;
        let whole = make(len, 0).drain(usize::MAX / 2);
        assert_eq!(make(len, 0).drain(7), whole);
        for head_len in [40, CHUNK_LEN_MIN, CHUNK_LEN_MIN + 1] {
            assert_eq!(make(head_len, len - head_len).drain(1000), whole);
        }
    }

    #[test]
    fn the_slices_of_a_write_are_limited() {
        let mut sending = Sending::default();
        sending.waiting.push_back(large(40, 100, 1));
        sending.stage_chunk();
        let mut batch = WriteBatch::default();
        (0..70).for_each(|_| batch.push(Pool::new(0).take(4 << 10)));
        sending.scheduler.stage_small(&mut batch);
        assert_eq!(sending.scheduler.slices().len(), SLICES_MAX);
        sending.scheduler.advance(RECORD_HEADER_LEN + FRAME_LEN_LEN);
        let slices = sending.scheduler.slices();
        assert!(slices.len() == SLICES_MAX && slices.iter().all(|slice| !slice.is_empty()));
        assert_eq!((slices[0].len(), slices[1].len()), (40, 100));
    }

    #[test]
    fn the_memory_of_written_frames_gathers_the_next() {
        let mut sending = Sending::default();
        sending.stage_small(100, 1);
        let address = sending.scheduler.slices()[0].as_ptr();
        sending.scheduler.advance(99);
        assert!(!sending.scheduler.is_at_boundary());
        sending.scheduler.advance(1);
        assert!(sending.scheduler.is_at_boundary());
        let mut batch = WriteBatch::default();
        sending.scheduler.stage_small(&mut batch);
        batch.push_bytes(&[2; 50]);
        sending.scheduler.stage_small(&mut batch);
        assert_eq!(sending.scheduler.slices()[0].as_ptr(), address);
    }

    #[test]
    fn discarding_frees_the_scheduler() {
        let mut sending = Sending::default();
        sending.waiting.extend([1, 2].map(|fill| large(3 * CHUNK_LEN_MIN, 0, fill)));
        sending.stage_chunk();
        sending.stage_small(100, 3);
        let mut discarded = Vec::new();
        sending.scheduler.discard_all(&mut discarded);
        assert_eq!(discarded.len(), 2);
        assert!(sending.scheduler.is_at_boundary() && !sending.scheduler.has_large());
        assert_eq!(sending.scheduler.small_bytes(), 0);
    }
}
