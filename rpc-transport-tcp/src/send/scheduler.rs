//! What is to be written, in the order in which it is to be written.
//!
//! Small frames go out in order, before any chunk that is not yet staged; large frames take turns
//! chunk by chunk. One chunk is staged at a time, which is what a small frame can be behind. Free
//! of I/O: a writer asks for slices and says how much of them it wrote.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::codec::record::{
    FRAME_LEN_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind, TRANSFERS_MAX,
};
use crate::send::batch::{Segment, WriteBatch};
use crate::send::frame::LargeFrame;

/// The most slices of one write; more gain nothing measurable.
const SLICES_MAX: usize = 64;

/// Bytes that are committed to their order.
#[derive(Debug)]
enum WriteSlice {
    Small(Segment),
    /// The header of a chunk, with the frame's length when it is the first.
    ChunkHeader([u8; RECORD_HEADER_LEN + FRAME_LEN_LEN], usize),
    /// A chunk of a large frame, from its own memory.
    Head(Arc<LargeFrame>, Range<usize>),
    /// A chunk of what lies elsewhere.
    Tail(Arc<LargeFrame>, Range<usize>),
}

impl WriteSlice {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(segment) => segment.bytes(),
            Self::ChunkHeader(bytes, len) => &bytes[..*len],
            Self::Head(frame, range) => &frame.head()[range.clone()],
            Self::Tail(frame, range) => &frame.tail[range.clone()],
        }
    }
}

/// A large frame of which chunks are still to be staged.
#[derive(Debug)]
struct Transfer {
    number: u32,
    frame: Arc<LargeFrame>,
    /// How much of the frame is staged.
    at: usize,
}

/// The queue of what is to be written.
#[derive(Debug, Default)]
pub(crate) struct WriteScheduler {
    waiting: VecDeque<LargeFrame>,
    transfers: VecDeque<Transfer>,
    transfer_count: u32,
    staged: VecDeque<WriteSlice>,
    /// How much of the first staged bytes is written.
    written: usize,
    /// The bytes of small frames that are staged.
    small_bytes: usize,
    /// Memory in which written frames were gathered.
    spent: Option<Vec<u8>>,
}

impl WriteScheduler {
    /// Stages the small frames that have come, behind what is staged already.
    pub(crate) fn stage_small(&mut self, small: &mut WriteBatch) {
        if let Some(memory) = self.spent.take() {
            small.keep(memory);
        }
        while let Some(segment) = small.pop() {
            self.small_bytes += segment.bytes().len();
            self.staged.push_back(WriteSlice::Small(segment));
        }
    }

    /// Queues a large frame.
    pub(crate) fn push_large(&mut self, frame: LargeFrame) {
        self.waiting.push_back(frame);
    }

    /// Gives back the large frames of those calls, as far as the peer has not heard of them.
    pub(crate) fn take_unbegun(&mut self, calls: &[u64]) -> Vec<LargeFrame> {
        if calls.is_empty() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for transfer in std::mem::take(&mut self.transfers) {
            if transfer.at > 0 || !transfer.frame.is_of(calls) {
                self.transfers.push_back(transfer);
            } else {
                // Nothing of it is staged, so that nothing else holds it.
                taken.extend(Arc::into_inner(transfer.frame));
            }
        }
        for frame in std::mem::take(&mut self.waiting) {
            if frame.is_of(calls) {
                taken.push(frame);
            } else {
                self.waiting.push_back(frame);
            }
        }
        taken
    }

    /// Whether nothing is left to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_at_boundary() && !self.has_chunks()
    }

    /// Whether all that is left are large frames of which no chunk is staged.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.staged.is_empty()
    }

    /// The bytes of small frames that are not written.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small_bytes
    }

    /// The next slices to write, in order; none when nothing is staged.
    pub(crate) fn slices(&self) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
        let mut skip = self.written;
        let slices = self.staged.iter().take(SLICES_MAX).map(|staged| {
            let bytes = &staged.bytes()[skip..];
            skip = 0;
            IoSlice::new(bytes)
        });
        slices.collect()
    }

    /// Records that `len` bytes of the slices were written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.written += len;
        while let Some(first) = self.staged.front() {
            let first_len = first.bytes().len();
            if self.written < first_len {
                break;
            }
            self.written -= first_len;
            if let Some(WriteSlice::Small(segment)) = self.staged.pop_front() {
                self.small_bytes -= first_len;
                if let Segment::Gathered(memory) = segment {
                    self.spent = Some(memory);
                }
            }
        }
    }

    /// Whether large frames wait or are under way.
    pub(crate) fn has_chunks(&self) -> bool {
        !(self.transfers.is_empty() && self.waiting.is_empty())
    }

    /// Stages the next chunk of a large frame, of at most `len_max` bytes, which asks for an ack
    /// if it is to; says how long it is. To be called only when nothing else is staged, so that
    /// small frames that come meanwhile go before it.
    pub(crate) fn stage_chunk(&mut self, len_max: usize, wants_ack: bool) -> usize {
        while self.transfers.len() < TRANSFERS_MAX
            && let Some(frame) = self.waiting.pop_front()
        {
            self.transfer_count = self.transfer_count.wrapping_add(1);
            let number = self.transfer_count;
            self.transfers.push_back(Transfer { number, frame: Arc::new(frame), at: 0 });
        }
        let Some(mut transfer) = self.transfers.pop_front() else { return 0 };
        let (frame_len, head_len) = (transfer.frame.len(), transfer.frame.head().len());
        let (start, end) = (transfer.at, frame_len.min(transfer.at + len_max));
        self.staged.push_back(chunk_header(&transfer, frame_len, end - start, wants_ack));
        if start < head_len {
            let range = start..end.min(head_len);
            self.staged.push_back(WriteSlice::Head(Arc::clone(&transfer.frame), range));
        }
        if end > head_len {
            let range = start.saturating_sub(head_len)..end - head_len;
            self.staged.push_back(WriteSlice::Tail(Arc::clone(&transfer.frame), range));
        }
        transfer.at = end;
        if end < frame_len {
            self.transfers.push_back(transfer);
        }
        end - start
    }
}

fn chunk_header(transfer: &Transfer, frame_len: usize, len: usize, wants_ack: bool) -> WriteSlice {
    let mut bytes = [0; RECORD_HEADER_LEN + FRAME_LEN_LEN];
    let (kind, extra) = match transfer.at {
        0 => (RecordKind::First, FRAME_LEN_LEN),
        _ => (RecordKind::Next, 0),
    };
    let header = RecordHeader { kind, len: len + extra, transfer: transfer.number, wants_ack };
    bytes[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
    bytes[RECORD_HEADER_LEN..].copy_from_slice(&(frame_len as u64).to_le_bytes());
    WriteSlice::ChunkHeader(bytes, RECORD_HEADER_LEN + extra)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rpc_core::memory::MemoryCharge;
    use rpc_core::pool::Pool;
    use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::pacing::chunk_len::CHUNK_LEN_MIN;
    use crate::send::frame::LargeShare;

    fn share() -> LargeShare {
        let _permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        LargeShare { _permit, _charge: MemoryCharge::default() }
    }

    fn large(head_len: usize, tail_len: usize, fill: u8) -> LargeFrame {
        let mut head = Pool::new(0).take(RECORD_HEADER_LEN + head_len);
        head.fill(fill);
        LargeFrame::new(head, vec![fill; tail_len].into(), share())
    }

    fn small(len: usize, fill: u8) -> WriteBatch {
        let mut batch = WriteBatch::default();
        batch.push_bytes(&vec![fill; len]);
        batch
    }

    /// Writes everything, at most `step` bytes at a time.
    fn drain(scheduler: &mut WriteScheduler, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while !scheduler.is_empty() {
            if scheduler.is_at_boundary() {
                scheduler.stage_chunk(CHUNK_LEN_MIN, false);
            }
            let mut room = step;
            for slice in scheduler.slices() {
                let len = slice.len().min(room);
                out.extend_from_slice(&slice[..len]);
                room -= len;
            }
            scheduler.advance(step - room);
        }
        out
    }

    #[test]
    fn a_small_frame_overtakes_the_chunks_that_are_not_staged() {
        let mut scheduler = WriteScheduler::default();
        scheduler.push_large(large(10 * CHUNK_LEN_MIN, 0, 1));
        assert_eq!(scheduler.stage_chunk(CHUNK_LEN_MIN, false), CHUNK_LEN_MIN);
        scheduler.stage_small(&mut small(100, 0xee));
        assert_eq!(scheduler.small_bytes(), 100);
        let bytes = drain(&mut scheduler, 1000);
        let at = bytes.iter().position(|byte| *byte == 0xee).unwrap();
        assert_eq!(at, RECORD_HEADER_LEN + FRAME_LEN_LEN + CHUNK_LEN_MIN);
        assert_eq!(scheduler.small_bytes(), 0);
    }

    #[test]
    fn large_frames_of_which_no_chunk_is_staged_can_be_taken_back() {
        let of = |call: u64| {
            let mut head = Pool::new(0).take(RECORD_HEADER_LEN + 3 * CHUNK_LEN_MIN);
            let header = FrameHeader::bare(FrameKind::Request, call).to_bytes();
            head[RECORD_HEADER_LEN..][..HEADER_LEN].copy_from_slice(&header);
            LargeFrame::new(head, Bytes::new(), share())
        };
        let mut scheduler = WriteScheduler::default();
        // Those of 7 and 9 have numbers by now, and the one of 7 has its turn.
        [of(7), of(9)].into_iter().for_each(|frame| scheduler.push_large(frame));
        scheduler.stage_chunk(CHUNK_LEN_MIN, false);
        [of(8), of(7), large(40, 0, 3)].into_iter().for_each(|frame| scheduler.push_large(frame));
        assert_eq!(scheduler.take_unbegun(&[]).len(), 0);
        assert_eq!(scheduler.take_unbegun(&[7, 9]).len(), 2);
        assert_eq!(scheduler.take_unbegun(&[7, 9]).len(), 0);
        let left = 3 * CHUNK_LEN_MIN + RECORD_HEADER_LEN * 3 + FRAME_LEN_LEN;
        let of_others = [3 * CHUNK_LEN_MIN + RECORD_HEADER_LEN * 3, 40 + RECORD_HEADER_LEN];
        let lens = left + of_others.iter().map(|len| len + FRAME_LEN_LEN).sum::<usize>();
        assert_eq!(drain(&mut scheduler, 1000).len(), lens);
    }

    #[test]
    fn large_frames_take_turns() {
        let mut scheduler = WriteScheduler::default();
        scheduler.push_large(large(3 * CHUNK_LEN_MIN, 0, 1));
        scheduler.push_large(large(3 * CHUNK_LEN_MIN, 0, 2));
        let bytes = drain(&mut scheduler, usize::MAX / 2);
        let chunk = CHUNK_LEN_MIN + RECORD_HEADER_LEN;
        let first = RECORD_HEADER_LEN + FRAME_LEN_LEN;
        assert_eq!(bytes[first], 1);
        assert_eq!(bytes[first + chunk + FRAME_LEN_LEN], 2);
        assert_eq!(bytes[first + 2 * chunk + FRAME_LEN_LEN], 1);
    }

    #[test]
    fn any_size_of_write_gives_the_same_bytes_wherever_they_lie() {
        let make = |head_len, tail_len| {
            let mut scheduler = WriteScheduler::default();
            scheduler.push_large(large(head_len, tail_len, 1));
            scheduler.stage_small(&mut small(40, 2));
            scheduler
        };
        let len = 2 * CHUNK_LEN_MIN + 7;
        let whole = drain(&mut make(len, 0), usize::MAX / 2);
        assert_eq!(drain(&mut make(len, 0), 7), whole);
        for head_len in [40, CHUNK_LEN_MIN, CHUNK_LEN_MIN + 1] {
            assert_eq!(drain(&mut make(head_len, len - head_len), 1000), whole);
        }
    }
}
