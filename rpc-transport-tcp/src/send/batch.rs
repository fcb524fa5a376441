//! Small frames on their way to the writer, one behind the other.
//!
//! Short ones are copied together, so that one write of one slice takes many of them: a slice of
//! its own costs the kernel more than copying a few hundred bytes costs us. Longer ones stay in
//! their memory. The order is that in which they were sent.

use std::collections::VecDeque;

use rpc_core::pool::{Pool, PoolBuffer};

/// The most bytes that are gathered in one buffer.
const GATHERED_LEN_MAX: usize = 64 << 10;

/// Gathering memory up to this length is kept for the next frames; longer is for a burst, and an
/// idle connection is not to hold it.
const KEPT_LEN_MAX: usize = 2 << 10;

/// Records of small frames, with their headers.
#[derive(Debug)]
pub(crate) enum Segment {
    /// Short ones, copied together.
    Gathered(Vec<u8>),
    /// One that stays in its memory.
    Alone(PoolBuffer),
}

impl Segment {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Gathered(bytes) => bytes,
            Self::Alone(memory) => memory,
        }
    }
}

/// Small frames that wait, and memory to gather the next ones in.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    segments: VecDeque<Segment>,
    bytes: usize,
    kept: Option<Vec<u8>>,
}

impl WriteBatch {
    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record; gives its memory back where that is free again.
    pub(crate) fn push(&mut self, record: PoolBuffer) -> Option<PoolBuffer> {
        if record.len() > SHORT_LEN_MAX {
            self.bytes += record.len();
            self.segments.push_back(Segment::Alone(record));
            return None;
        }
        self.push_bytes(&record);
        Some(record)
    }

    /// Adds a short record.
    pub(crate) fn push_bytes(&mut self, record: &[u8]) {
        self.bytes += record.len();
        if let Some(Segment::Gathered(bytes)) = self.segments.back_mut()
            && bytes.len() + record.len() <= GATHERED_LEN_MAX
        {
            return bytes.extend_from_slice(record);
        }
        let mut bytes = self.kept.take().unwrap_or_default();
        bytes.extend_from_slice(record);
        self.segments.push_back(Segment::Gathered(bytes));
    }

    /// Takes the next segment.
    pub(crate) fn pop(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        self.bytes -= segment.bytes().len();
        Some(segment)
    }

    /// Gives memory back for gathering in it again.
    pub(crate) fn keep(&mut self, mut memory: Vec<u8>) {
        if memory.capacity() <= KEPT_LEN_MAX {
            memory.clear();
            self.kept = Some(memory);
        }
    }

    /// Drops what waits.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }
}

/// The longest frame whose memory is kept. Copying as much costs less than a slice of its own
/// costs the kernel.
pub(crate) const SHORT_LEN_MAX: usize = 2 << 10;

/// The most that is kept: enough for two threads that make frames at the same moment.
const FREE_COUNT_MAX: usize = 2;

/// Memory that is kept.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    buffers: Vec<PoolBuffer>,
}

impl FreeList {
    /// Memory of `len` bytes that was kept.
    pub(crate) fn take(&mut self, len: usize) -> Option<PoolBuffer> {
        if len > SHORT_LEN_MAX {
            return None;
        }
        self.buffers.pop()?.resized(len)
    }

    /// New memory of `len` bytes, which can be kept later if it is short.
    pub(crate) fn allocate(pool: &Pool, len: usize) -> PoolBuffer {
        let memory = pool.take(len.max(SHORT_LEN_MAX));
        // It is at least that long.
        memory.resized(len).unwrap_or_else(|| pool.take(len))
    }

    /// Keeps memory, if it is short and there is not enough yet.
    pub(crate) fn keep(&mut self, memory: PoolBuffer) {
        if self.buffers.len() < FREE_COUNT_MAX && memory.len() <= SHORT_LEN_MAX {
            self.buffers.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: usize, fill: u8) -> PoolBuffer {
        let mut record = Pool::new(0).take(len);
        record.fill(fill);
        record
    }

    #[test]
    fn short_records_share_a_segment_and_the_order_is_kept() {
        let mut batch = WriteBatch::default();
        assert!(batch.push(record(10, 1)).is_some(), "its memory is free again");
        batch.push_bytes(&[2; 10]);
        assert!(batch.push(record(SHORT_LEN_MAX + 1, 3)).is_none());
        batch.push_bytes(&[4; 10]);
        assert_eq!(batch.bytes(), SHORT_LEN_MAX + 31);
        let segments: Vec<_> = std::iter::from_fn(|| batch.pop()).collect();
        let firsts: Vec<_> =
            segments.iter().map(|segment| (segment.bytes()[0], segment.bytes().len())).collect();
        assert_eq!(firsts, [(1, 20), (3, SHORT_LEN_MAX + 1), (4, 10)]);
        assert_eq!(batch.bytes(), 0);
    }

    #[test]
    fn a_segment_gathers_up_to_a_bound() {
        let mut batch = WriteBatch::default();
        batch.push_bytes(&[1; GATHERED_LEN_MAX / 2]);
        batch.push_bytes(&[1; GATHERED_LEN_MAX / 2]);
        assert_eq!(batch.segments.len(), 1);
        batch.push_bytes(&[1]);
        assert_eq!(batch.segments.len(), 2);
        batch.clear();
        assert_eq!((batch.bytes(), batch.segments.len()), (0, 0));
    }

    #[test]
    fn a_record_up_to_a_bound_is_copied() {
        let mut batch = WriteBatch::default();
        assert!(batch.push(record(SHORT_LEN_MAX, 1)).is_some());
        assert!(batch.push(record(SHORT_LEN_MAX + 1, 1)).is_none());
    }

    #[test]
    fn memory_that_was_kept_is_empty() {
        let mut batch = WriteBatch::default();
        batch.keep(vec![7; 100]);
        batch.push_bytes(&[1]);
        assert_eq!(batch.pop().unwrap().bytes(), [1]);
    }

    #[test]
    fn an_idle_connection_keeps_little_memory() {
        let mut batch = WriteBatch::default();
        batch.keep(Vec::with_capacity(KEPT_LEN_MAX + 1));
        assert!(batch.kept.is_none());
        batch.keep(Vec::with_capacity(KEPT_LEN_MAX));
        assert_eq!(batch.kept.as_ref().map(Vec::capacity), Some(KEPT_LEN_MAX));
        batch.keep(Vec::with_capacity(100));
        assert_eq!(batch.kept.as_ref().map(Vec::capacity), Some(100));
    }

    #[test]
    fn short_memory_serves_again_and_long_memory_does_not() {
        let pool = Pool::new(0);
        let mut free_list = FreeList::default();
        let memory = FreeList::allocate(&pool, 40);
        assert_eq!(memory.len(), 40);
        assert_eq!(FreeList::allocate(&pool, 2 * SHORT_LEN_MAX).len(), 2 * SHORT_LEN_MAX);
        let address = memory.as_ptr();
        free_list.keep(memory);
        free_list.keep(FreeList::allocate(&pool, SHORT_LEN_MAX + 1));
        let again = free_list.take(SHORT_LEN_MAX).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, SHORT_LEN_MAX));
        assert!(free_list.take(40).is_none());
        free_list.keep(again);
        assert!(free_list.take(SHORT_LEN_MAX + 1).is_none(), "it is too short");
        assert_eq!(free_list.take(40).unwrap().len(), 40);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Pool::new(0);
        let mut free_list = FreeList::default();
        (0..2 * FREE_COUNT_MAX).for_each(|_| free_list.keep(FreeList::allocate(&pool, 1)));
        assert_eq!(free_list.buffers.len(), FREE_COUNT_MAX);
    }
}
