//! Memory that a frame is written into.

use bytes::Bytes;
use rpc_core::memory::MemoryCharge;
use rpc_core::pool::PoolBuffer;
use rpc_core::transport::{OutFrame, Withdrawn};
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::OwnedSemaphorePermit;

use crate::codec::record::{RECORD_HEADER_LEN, RecordHeader, RecordKind};

/// The bytes of large frames that may wait to be written. A longer frame waits to be alone.
pub(crate) const LARGE_BYTES_MAX: usize = 128 << 20;

/// Memory for a frame, with room for a record's header before it; and of a large frame the end that
/// is written from where it lies, and the share of the budgets.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    memory: PoolBuffer,
    /// Empty where the whole frame is in `memory`.
    tail: Bytes,
    share: Option<LargeShare>,
}

/// A frame that is complete.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A whole record.
    Small(PoolBuffer),
    /// To be sent in chunks.
    Large(LargeFrame),
}

/// The frames that were sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentCounts {
    pub(crate) small_count: u64,
    pub(crate) large_count: u64,
    /// The bytes that were written into memory of the transport.
    pub(crate) bytes: u64,
}

impl FrameBuffer {
    /// The memory that `len` bytes of a frame need.
    pub(crate) fn memory_len(len: usize) -> usize {
        len + RECORD_HEADER_LEN
    }

    /// For a frame that is sent as one record.
    pub(crate) fn small(memory: PoolBuffer) -> Self {
        Self { memory, tail: Bytes::new(), share: None }
    }

    /// For a frame that is sent in chunks.
    pub(crate) fn large(memory: PoolBuffer, tail: Bytes, share: LargeShare) -> Self {
        Self { memory, tail, share: Some(share) }
    }

    /// How many bytes of the frame are written into it.
    pub(crate) fn written_len(&self) -> usize {
        self.memory.len() - RECORD_HEADER_LEN
    }

    /// Lets `frame` write itself into it.
    pub(crate) fn fill(&mut self, frame: OutFrame<'_>) -> Result<(), Withdrawn> {
        let memory = &mut self.memory[RECORD_HEADER_LEN..];
        if self.tail.is_empty() { frame.write(memory) } else { frame.write_head(memory) }
    }

    pub(crate) fn into_frame(mut self) -> Frame {
        if let Some(share) = self.share {
            return Frame::Large(LargeFrame::new(self.memory, self.tail, share));
        }
        let header = RecordHeader::new(RecordKind::Single, self.written_len());
        self.memory[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
        Frame::Small(self.memory)
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

#[cfg(test)]
mod tests {
    use rpc_core::pool::Pool;
    use rpc_core::transport::WriteHead;

    use super::*;

    fn memory(len: usize) -> PoolBuffer {
        Pool::new(0).take(FrameBuffer::memory_len(len))
    }

    #[test]
    fn a_small_frame_is_a_record_with_a_header_of_its_own() {
        let bytes = [7; 100];
        let mut buffer = FrameBuffer::small(memory(bytes.len()));
        assert_eq!(buffer.written_len(), bytes.len());
        assert_eq!(buffer.fill(OutFrame::new(bytes.len(), None, &mut &bytes[..])), Ok(()));
        let Frame::Small(record) = buffer.into_frame() else { panic!("it is small") };
        let header = RecordHeader::new(RecordKind::Single, bytes.len()).to_bytes();
        assert_eq!(record[..], [&header[..], &bytes[..]].concat());
    }

    #[test]
    fn of_a_large_frame_with_a_tail_the_head_alone_is_written() {
        let (head, tail) = ([7; 100], Bytes::from_static(&[8; 1000]));
        for tail in [Bytes::new(), tail] {
            let share = LargeShare::unlimited();
            let mut buffer = FrameBuffer::large(memory(head.len()), tail.clone(), share);
            let of_frame = Some(&tail).filter(|tail| !tail.is_empty());
            assert_eq!(buffer.fill(OutFrame::new(head.len(), of_frame, &mut &head[..])), Ok(()));
            let Frame::Large(frame) = buffer.into_frame() else { panic!("it is large") };
            assert_eq!((frame.head(), &frame.tail), (&head[..], &tail));
            assert_eq!(frame.len(), head.len() + tail.len());
        }
    }

    /// A frame that is given up while it is written.
    struct GivenUp;

    impl WriteHead for GivenUp {
        fn write_head(&mut self, _: &mut [u8]) -> Result<(), Withdrawn> {
            Err(Withdrawn)
        }
    }

    #[test]
    fn a_frame_that_withdraws_itself_is_none() {
        for tail in [Bytes::new(), Bytes::from_static(&[8; 1000])] {
            let of_frame = Some(&tail).filter(|tail| !tail.is_empty());
            let mut buffer = FrameBuffer::large(memory(100), tail.clone(), LargeShare::unlimited());
            let filled = buffer.fill(OutFrame::new(100, of_frame, &mut GivenUp));
            assert_eq!(filled, Err(Withdrawn));
        }
    }
}
