//! Small frames on their way to the writer, one behind the other.
//!
//! Short ones are copied together, so that one write of one slice takes many of them: a slice of
//! its own costs the kernel more than copying a few hundred bytes costs us. Longer ones stay in
//! their memory. The order is that in which they were sent.

use std::collections::VecDeque;

use rpc_core::pool::PoolBuffer;

use crate::send::spare;

/// The most bytes that are gathered in one piece of memory.
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
pub(crate) struct Gathered {
    segments: VecDeque<Segment>,
    bytes: usize,
    kept: Option<Vec<u8>>,
}

impl Gathered {
    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record; gives its memory back where that is free again.
    pub(crate) fn push(&mut self, record: PoolBuffer) -> Option<PoolBuffer> {
        if record.len() > spare::LEN {
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
    fn short_records_share_a_segment_and_the_order_is_kept() {
        let mut gathered = Gathered::default();
        assert!(gathered.push(record(10, 1)).is_some(), "its memory is free again");
        gathered.push_bytes(&[2; 10]);
        assert!(gathered.push(record(spare::LEN + 1, 3)).is_none());
        gathered.push_bytes(&[4; 10]);
        assert_eq!(gathered.bytes(), spare::LEN + 31);
        let segments: Vec<_> = std::iter::from_fn(|| gathered.pop()).collect();
        let firsts: Vec<_> =
            segments.iter().map(|segment| (segment.bytes()[0], segment.bytes().len())).collect();
        assert_eq!(firsts, [(1, 20), (3, spare::LEN + 1), (4, 10)]);
        assert_eq!(gathered.bytes(), 0);
    }

    #[test]
    fn an_idle_connection_keeps_little_memory() {
        let mut gathered = Gathered::default();
        gathered.keep(Vec::with_capacity(KEPT_LEN_MAX + 1));
        assert!(gathered.kept.is_none());
        gathered.keep(Vec::with_capacity(100));
        assert_eq!(gathered.kept.as_ref().map(Vec::capacity), Some(100));
    }
}
