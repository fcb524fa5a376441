//! Small frames that wait for the writer, in the order in which they were sent.
//!
//! Short frames are copied together, so that one slice of one write carries many of them. A
//! separate slice costs the kernel more than copying a few hundred bytes costs this side. Longer
//! frames stay in their own memory.

use std::cell::Cell;
use std::collections::VecDeque;

use rpc_core::pool::PoolBuffer;

/// Maximum number of bytes gathered in one buffer.
const GATHERED_LEN_MAX: usize = 64 << 10;

/// Maximum length of gathering memory that is kept for later frames of any connection, in bytes. An
/// idle connection holds none. This suffices for a corked queue; longer memory served a burst.
const KEPT_LEN_MAX: usize = 8 << 10;

thread_local! {
    /// Gathering memory that a writer has emptied on this thread.
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps the memory of written frames for this thread's next batch.
pub(crate) fn keep(mut memory: Vec<u8>) {
    if memory.capacity() <= KEPT_LEN_MAX {
        memory.clear();
        // Fails on a thread that is ending.
        let _ = KEPT.try_with(|kept| kept.set(memory));
    }
}

/// Records of small frames, including their headers.
#[derive(Debug)]
pub(crate) enum Segment {
    /// Short records, copied together.
    Gathered(Vec<u8>),
    /// One record in its own memory.
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

/// Small frames that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    segments: VecDeque<Segment>,
    bytes: usize,
}

impl WriteBatch {
    /// Returns the number of waiting bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: PoolBuffer) {
        if record.len() <= SHORT_LEN_MAX {
            return self.push_bytes(&record);
        }
        self.bytes += record.len();
        self.segments.push_back(Segment::Alone(record));
    }

    /// Adds a short record by copying it.
    #[inline(always)]
    pub(crate) fn push_bytes(&mut self, record: &[u8]) {
        self.bytes += record.len();
        // Only the last segment may grow. Filling an earlier one would reorder the frames.
        if let Some(Segment::Gathered(bytes)) = self.segments.back_mut()
            && bytes.len() + record.len() <= GATHERED_LEN_MAX
        {
            return bytes.extend_from_slice(record);
        }
        // Reuses this thread's memory, so that an idle connection needs none of its own.
        let mut bytes = KEPT.try_with(Cell::take).unwrap_or_default();
        bytes.extend_from_slice(record);
        self.segments.push_back(Segment::Gathered(bytes));
    }

    /// Takes the next segment.
    pub(crate) fn pop(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        self.bytes -= segment.bytes().len();
        Some(segment)
    }

    /// Drops all waiting frames.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }
}

/// Maximum length of a record that is copied, in bytes. Copying a longer one would cost more than a
/// separate slice.
pub(crate) const SHORT_LEN_MAX: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use rpc_core::pool::Pool;

    use super::*;

    fn record(len: usize, fill: u8) -> PoolBuffer {
        let mut record = Pool::new(0).take(len);
        record.fill(fill);
        record
    }

    #[test]
    fn short_records_share_a_segment_in_order() {
        let mut batch = WriteBatch::default();
        batch.push(record(10, 1));
        batch.push_bytes(&[2; 10]);
        batch.push(record(SHORT_LEN_MAX + 1, 3));
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
    fn only_short_records_are_copied() {
        let mut batch = WriteBatch::default();
        batch.push(record(SHORT_LEN_MAX, 1));
        batch.push(record(SHORT_LEN_MAX + 1, 1));
        assert!(matches!(batch.pop(), Some(Segment::Gathered(_))));
        assert!(matches!(batch.pop(), Some(Segment::Alone(_))));
    }

    #[test]
    fn kept_memory_is_empty_and_bounded() {
        keep(vec![7; 100]);
        let mut batch = WriteBatch::default();
        batch.push_bytes(&[1]);
        assert_eq!(batch.pop().unwrap().bytes(), [1]);
        keep(Vec::with_capacity(KEPT_LEN_MAX + 1));
        assert_eq!(KEPT.take().capacity(), 0, "it was in use, and the long one is not kept");
        keep(Vec::with_capacity(KEPT_LEN_MAX));
        assert_eq!(KEPT.take().capacity(), KEPT_LEN_MAX);
    }
}
