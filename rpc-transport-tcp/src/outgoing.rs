//! What is to be written, in the order in which it is to be written.
//!
//! Small frames go out in order, before any piece that is not yet staged; large frames take turns
//! piece by piece. At most [`STAGED_BYTES_MAX`] are staged at a time, which is what a small frame
//! can be behind. Free of I/O: a writer asks for slices and says how much of them it wrote.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rpc_core::pool::PoolBuffer;
use rpc_core::wire::HEADER_LEN;
use tokio::sync::OwnedSemaphorePermit;

use crate::record::{
    FRAME_LEN_LEN, PIECE_LEN_MAX, RECORD_HEADER_LEN, RecordHeader, RecordKind, TRANSFERS_MAX,
    WHOLE_LEN_MAX,
};
use crate::spare::Spare;

/// The most bytes that are committed to their order: two pieces, so that a write of one leaves
/// another ready.
const STAGED_BYTES_MAX: usize = 2 * PIECE_LEN_MAX;

/// The most slices of one write; more gain nothing measurable.
pub(crate) const SLICES_MAX: usize = 64;

/// Memory for a frame, with room for a record's header before it and its share of the queue's
/// budget, which comes back when the frame is written.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    memory: PoolBuffer,
    _permit: OwnedSemaphorePermit,
}

impl FrameBuffer {
    /// The memory that a frame of `len` bytes needs.
    pub(crate) fn memory_len(len: usize) -> usize {
        len + RECORD_HEADER_LEN
    }

    pub(crate) fn new(memory: PoolBuffer, permit: OwnedSemaphorePermit) -> Self {
        Self { memory, _permit: permit }
    }

    /// The length of the frame in it.
    pub(crate) fn frame_len(&self) -> usize {
        self.memory.len() - RECORD_HEADER_LEN
    }
}

impl AsMut<[u8]> for FrameBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[RECORD_HEADER_LEN..]
    }
}

/// Bytes that are committed to their order.
#[derive(Debug)]
enum Staged {
    /// A record's header and small frame in one piece of memory.
    Whole(FrameBuffer),
    /// A record that is a frame's header alone.
    Control([u8; RECORD_HEADER_LEN + HEADER_LEN]),
    /// The header of a piece, with the frame's length when it is the first.
    PieceHeader([u8; RECORD_HEADER_LEN + FRAME_LEN_LEN], usize),
    /// A piece of a large frame.
    Piece(Arc<FrameBuffer>, Range<usize>),
}

impl Staged {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(frame) => &frame.memory,
            Self::Control(bytes) => bytes,
            Self::PieceHeader(bytes, len) => &bytes[..*len],
            Self::Piece(frame, range) => &frame.memory[range.clone()],
        }
    }
}

/// A large frame of which pieces are still to be staged.
#[derive(Debug)]
struct Transfer {
    number: u32,
    frame: Arc<FrameBuffer>,
    /// How much of the frame is staged.
    at: usize,
}

/// The queue of what is to be written.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    small: VecDeque<Staged>,
    waiting: VecDeque<FrameBuffer>,
    transfers: VecDeque<Transfer>,
    transfer_count: u32,
    staged: VecDeque<Staged>,
    staged_bytes: usize,
    /// How much of the first staged bytes is written.
    written: usize,
    /// The memory of small frames that are written.
    pub(crate) spare: Spare,
}

impl Outgoing {
    /// Queues a frame; true when it travels in pieces.
    pub(crate) fn push(&mut self, mut frame: FrameBuffer) -> bool {
        let len = frame.frame_len();
        if len > WHOLE_LEN_MAX {
            self.waiting.push_back(frame);
            return true;
        }
        let header = RecordHeader { kind: RecordKind::Whole, len, transfer: 0 };
        frame.memory[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.small.push_back(Staged::Whole(frame));
        false
    }

    /// Queues a frame that is a header alone.
    pub(crate) fn push_control(&mut self, frame: [u8; HEADER_LEN]) {
        let header = RecordHeader { kind: RecordKind::Whole, len: HEADER_LEN, transfer: 0 };
        let mut bytes = [0; RECORD_HEADER_LEN + HEADER_LEN];
        bytes[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
        bytes[RECORD_HEADER_LEN..].copy_from_slice(&frame);
        self.small.push_back(Staged::Control(bytes));
    }

    /// Whether nothing is left to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.staged.is_empty()
            && self.small.is_empty()
            && self.transfers.is_empty()
            && self.waiting.is_empty()
    }

    /// The next slices to write, in order; none when there is nothing to write.
    pub(crate) fn slices(&mut self) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
        self.stage();
        let mut skip = self.written;
        let slices = self.staged.iter().take(SLICES_MAX).map(|staged| {
            let bytes = &staged.bytes()[skip..];
            skip = 0;
            IoSlice::new(bytes)
        });
        slices.collect()
    }

    /// Takes note that `len` bytes of the slices were written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.staged_bytes -= len;
        self.written += len;
        while let Some(first) = self.staged.front() {
            let first_len = first.bytes().len();
            if self.written < first_len {
                break;
            }
            self.written -= first_len;
            if let Some(Staged::Whole(frame)) = self.staged.pop_front() {
                self.spare.keep(frame.memory);
            }
        }
    }

    fn stage(&mut self) {
        while self.staged_bytes < STAGED_BYTES_MAX {
            if let Some(small) = self.small.pop_front() {
                self.commit(small);
            } else if !self.stage_piece() {
                break;
            }
        }
    }

    fn stage_piece(&mut self) -> bool {
        while self.transfers.len() < TRANSFERS_MAX
            && let Some(frame) = self.waiting.pop_front()
        {
            self.transfer_count = self.transfer_count.wrapping_add(1);
            let number = self.transfer_count;
            self.transfers.push_back(Transfer { number, frame: Arc::new(frame), at: 0 });
        }
        let Some(mut transfer) = self.transfers.pop_front() else { return false };
        let frame_len = transfer.frame.frame_len();
        let len = PIECE_LEN_MAX.min(frame_len - transfer.at);
        self.commit(piece_header(&transfer, frame_len, len));
        let start = RECORD_HEADER_LEN + transfer.at;
        self.commit(Staged::Piece(Arc::clone(&transfer.frame), start..start + len));
        transfer.at += len;
        if transfer.at < frame_len {
            self.transfers.push_back(transfer);
        }
        true
    }

    fn commit(&mut self, staged: Staged) {
        self.staged_bytes += staged.bytes().len();
        self.staged.push_back(staged);
    }
}

fn piece_header(transfer: &Transfer, frame_len: usize, len: usize) -> Staged {
    let mut bytes = [0; RECORD_HEADER_LEN + FRAME_LEN_LEN];
    let (kind, extra) = match transfer.at {
        0 => (RecordKind::First, FRAME_LEN_LEN),
        _ => (RecordKind::Next, 0),
    };
    let header = RecordHeader { kind, len: len + extra, transfer: transfer.number };
    bytes[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
    bytes[RECORD_HEADER_LEN..].copy_from_slice(&(frame_len as u64).to_le_bytes());
    Staged::PieceHeader(bytes, RECORD_HEADER_LEN + extra)
}

#[cfg(test)]
mod tests {
    use rpc_core::pool::Pool;
    use tokio::sync::Semaphore;

    use super::*;

    fn frame(len: usize, fill: u8) -> FrameBuffer {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut frame = FrameBuffer::new(Pool::new(0).take(FrameBuffer::memory_len(len)), permit);
        frame.as_mut().fill(fill);
        frame
    }

    /// Writes everything, at most `step` bytes at a time.
    fn drain(outgoing: &mut Outgoing, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while !outgoing.is_empty() {
            let mut room = step;
            for slice in outgoing.slices() {
                let len = slice.len().min(room);
                out.extend_from_slice(&slice[..len]);
                room -= len;
            }
            outgoing.advance(step - room);
        }
        out
    }

    #[test]
    fn a_small_frame_overtakes_the_pieces_that_are_not_staged() {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.push(frame(10 * PIECE_LEN_MAX, 1)));
        assert!(!outgoing.slices().is_empty());
        assert!(!outgoing.push(frame(100, 2)));
        let bytes = drain(&mut outgoing, 1000);
        let at = bytes.iter().position(|byte| *byte == 2 && bytes.len() > 1).unwrap();
        assert!(at < STAGED_BYTES_MAX + 2 * PIECE_LEN_MAX, "{at}");
    }

    #[test]
    fn large_frames_take_turns() {
        let mut outgoing = Outgoing::default();
        outgoing.push(frame(3 * PIECE_LEN_MAX, 1));
        outgoing.push(frame(3 * PIECE_LEN_MAX, 2));
        let bytes = drain(&mut outgoing, usize::MAX / 2);
        let piece = PIECE_LEN_MAX + RECORD_HEADER_LEN;
        let first = RECORD_HEADER_LEN + FRAME_LEN_LEN;
        assert_eq!(bytes[first], 1);
        assert_eq!(bytes[first + piece + FRAME_LEN_LEN], 2);
        assert_eq!(bytes[first + 2 * piece + FRAME_LEN_LEN], 1);
    }

    #[test]
    fn any_size_of_write_gives_the_same_bytes() {
        let make = || {
            let mut outgoing = Outgoing::default();
            outgoing.push(frame(WHOLE_LEN_MAX + 1, 1));
            outgoing.push(frame(40, 2));
            outgoing.push_control([3; HEADER_LEN]);
            outgoing
        };
        let whole = drain(&mut make(), usize::MAX / 2);
        assert_eq!(drain(&mut make(), 1), whole);
        assert_eq!(drain(&mut make(), 7), whole);
    }
}
