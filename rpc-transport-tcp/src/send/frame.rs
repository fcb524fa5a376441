//! Memory that frames encode into.

use bytes::Bytes;
use rpc_core::memory::MemoryCharge;
use rpc_core::pool::PoolBuffer;
use rpc_core::transport::{OutFrame, Withdrawn};
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::OwnedSemaphorePermit;

use crate::codec::record::{RECORD_HEADER_LEN, RecordHeader, RecordKind};

/// Maximum number of bytes of large frames that wait to be written. A longer frame waits until it
/// is alone.
pub(crate) const LARGE_BYTES_MAX: usize = 128 << 20;

/// Memory for a frame, after room for a record header. A large frame also has a tail that is sent
/// without a copy, and a share of the budgets.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    memory: PoolBuffer,
    /// Empty if the whole frame is in `memory`.
    tail: Bytes,
    share: Option<LargeShare>,
}

/// A complete frame.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A complete record.
    Small(PoolBuffer),
    /// A frame to be sent in chunks.
    Large(LargeFrame),
}

/// Counters of sent frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentCounts {
    pub(crate) small_count: u64,
    pub(crate) large_count: u64,
    /// Bytes written into the transport's memory.
    pub(crate) bytes: u64,
}

impl FrameBuffer {
    /// Returns the memory that `len` bytes of a frame need.
    pub(crate) fn memory_len(len: usize) -> usize {
        len + RECORD_HEADER_LEN
    }

    /// Creates a buffer for a frame that is sent as one record.
    pub(crate) fn small(memory: PoolBuffer) -> Self {
        Self { memory, tail: Bytes::new(), share: None }
    }

    /// Creates a buffer for a frame that is sent in chunks.
    pub(crate) fn large(memory: PoolBuffer, tail: Bytes, share: LargeShare) -> Self {
        Self { memory, tail, share: Some(share) }
    }

    /// Returns the number of bytes that the frame writes into the buffer.
    pub(crate) fn written_len(&self) -> usize {
        self.memory.len() - RECORD_HEADER_LEN
    }

    /// Lets `frame` encode itself into the buffer.
    pub(crate) fn fill(&mut self, frame: OutFrame<'_>) -> Result<(), Withdrawn> {
        let memory = &mut self.memory[RECORD_HEADER_LEN..];
        // With a tail, the frame writes its head alone: the tail leaves from the caller's own
        // memory.
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

/// A large frame.
///
/// Its memory begins with room for a record header, like that of every frame. `tail` follows the
/// head without a copy. The share of the budgets returns when the frame is written.
#[derive(Debug)]
pub(crate) struct LargeFrame {
    memory: PoolBuffer,
    pub(crate) tail: Bytes,
    _share: LargeShare,
}

/// A large frame's share of the queue's budget, and its charge against the process's.
#[derive(Debug)]
pub(crate) struct LargeShare {
    pub(crate) _permit: OwnedSemaphorePermit,
    pub(crate) _charge: MemoryCharge,
}

#[cfg(test)]
impl LargeShare {
    /// Returns a share of otherwise unused budgets.
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

    /// Returns true if the frame belongs to one of the calls.
    pub(crate) fn is_of(&self, calls: &[u64]) -> bool {
        let header = self.head().first_chunk::<HEADER_LEN>();
        let header = header.and_then(|header| FrameHeader::parse(header).ok());
        // A frame without a valid header belongs to no call, and is simply sent.
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
    fn only_the_head_of_a_frame_with_a_tail_is_written() {
        let (head, tail) = ([7; 100], Bytes::from_static(&[8; 1000]));
        for tail in [Bytes::new(), tail] {
            let share = LargeShare::unlimited();
            let mut buffer = FrameBuffer::large(memory(head.len()), tail.clone(), share);
            let tail_of_frame = Some(&tail).filter(|tail| !tail.is_empty());
            assert_eq!(
                buffer.fill(OutFrame::new(head.len(), tail_of_frame, &mut &head[..])),
                Ok(())
            );
            let Frame::Large(frame) = buffer.into_frame() else { panic!("it is large") };
            assert_eq!((frame.head(), &frame.tail), (&head[..], &tail));
            assert_eq!(frame.len(), head.len() + tail.len());
        }
    }

    /// A frame that withdraws while it encodes itself.
    struct GivenUp;

    impl WriteHead for GivenUp {
        fn write_head(&mut self, _: &mut [u8]) -> Result<(), Withdrawn> {
            Err(Withdrawn)
        }
    }

    #[test]
    fn a_withdrawn_frame_is_not_filled() {
        for tail in [Bytes::new(), Bytes::from_static(&[8; 1000])] {
            let tail_of_frame = Some(&tail).filter(|tail| !tail.is_empty());
            let mut buffer = FrameBuffer::large(memory(100), tail.clone(), LargeShare::unlimited());
            let filled = buffer.fill(OutFrame::new(100, tail_of_frame, &mut GivenUp));
            assert_eq!(filled, Err(Withdrawn));
        }
    }
}
