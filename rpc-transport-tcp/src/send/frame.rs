//! Memory that a frame is written into.

use bytes::Bytes;
use rpc_core::memory::MemoryCharge;
use rpc_core::pool::PoolBuffer;
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::OwnedSemaphorePermit;

use crate::codec::record::{RECORD_HEADER_LEN, RecordHeader, RecordKind};

/// The bytes of large frames that may wait to be written. A longer frame waits to be alone.
pub(crate) const LARGE_BYTES_MAX: usize = 128 << 20;

/// Memory for a frame, with room for a record's header before it, and the share of the budgets for
/// large frames if it is one.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    memory: PoolBuffer,
    share: Option<LargeShare>,
}

/// The end of a frame that is written from where it lies, and its share of the budgets.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) bytes: Bytes,
    pub(crate) share: LargeShare,
}

/// A frame that is complete.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A whole record.
    Small(PoolBuffer),
    /// To be sent in chunks.
    Large(LargeFrame),
}

impl FrameBuffer {
    /// The memory that a frame of `len` bytes needs.
    pub(crate) fn memory_len(len: usize) -> usize {
        len + RECORD_HEADER_LEN
    }

    pub(crate) fn new(memory: PoolBuffer, share: Option<LargeShare>) -> Self {
        Self { memory, share }
    }

    /// The length of the frame in it.
    pub(crate) fn frame_len(&self) -> usize {
        self.memory.len() - RECORD_HEADER_LEN
    }

    pub(crate) fn into_frame(mut self) -> Frame {
        if let Some(share) = self.share {
            return Frame::Large(LargeFrame::new(self.memory, Bytes::new(), share));
        }
        let header = RecordHeader::new(RecordKind::Single, self.frame_len());
        self.memory[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
        Frame::Small(self.memory)
    }

    /// Adds a tail, which is claimed for frames only whose head is a small one.
    pub(crate) fn with_tail(self, Tail { bytes, share }: Tail) -> Frame {
        Frame::Large(LargeFrame::new(self.memory, bytes, share))
    }
}

impl AsMut<[u8]> for FrameBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[RECORD_HEADER_LEN..]
    }
}

/// A large frame: its memory, which begins with room for a record's header as every frame's does,
/// what is sent from where it lies behind that, and its share of the budgets, which comes back when
/// the frame is written.
#[derive(Debug)]
pub(crate) struct LargeFrame {
    memory: PoolBuffer,
    pub(crate) tail: Bytes,
    _share: LargeShare,
}

/// What a large frame has of the queue's budget, and what counts towards the process's.
#[derive(Debug)]
pub(crate) struct LargeShare {
    pub(crate) _permit: OwnedSemaphorePermit,
    pub(crate) _charge: MemoryCharge,
}

#[cfg(test)]
impl LargeShare {
    /// A share of budgets that nothing else uses.
    pub(crate) fn unlimited() -> Self {
        let budget = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let _permit = budget.try_acquire_owned().unwrap();
        Self { _permit, _charge: MemoryCharge::default() }
    }
}

impl LargeFrame {
    pub(crate) fn new(memory: PoolBuffer, tail: Bytes, share: LargeShare) -> Self {
        Self { memory, tail, _share: share }
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.memory[RECORD_HEADER_LEN..]
    }

    pub(crate) fn len(&self) -> usize {
        self.head().len() + self.tail.len()
    }

    /// Whether it is of one of those calls.
    pub(crate) fn is_of(&self, calls: &[u64]) -> bool {
        let header = self.head().first_chunk::<HEADER_LEN>();
        let header = header.and_then(|header| FrameHeader::parse(header).ok());
        header.is_some_and(|header| calls.contains(&header.call))
    }
}
