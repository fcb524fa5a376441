//! How long chunks of large frames are while no small frame shares the way with them.
//!
//! A small frame that comes waits behind the chunk that is being written, which should be short
//! then. Long chunks cost fewer calls into the kernel, and fewer packets. So chunks are as long as
//! a socket takes within a millisecond: they double from one to the next while it takes them
//! faster, and halve when it is slower.
//!
//! Over loopback, 1 MiB messages are a fifth faster than in chunks of 64 KiB. They cost a sixth
//! more processor time than blocking reads and writes; in chunks of 64 KiB they cost half as much
//! again.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

/// The shortest: at 1 GB/s, 65 us that a small frame waits behind it.
pub(crate) const CHUNK_LEN_MIN: usize = 64 << 10;

/// The longest that a record holds. To write it takes as long as to encode it did, 0.2 ms where
/// copying is all there is.
pub(crate) const CHUNK_LEN_MAX: usize = 1 << 20;

/// How long a chunk may take to be written.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The length of the next chunk.
#[derive(Debug)]
pub(crate) struct ChunkLen {
    len_max: usize,
    /// The chunk that is being written, and since when.
    current: Option<(usize, Instant)>,
}

impl Default for ChunkLen {
    fn default() -> Self {
        Self { len_max: CHUNK_LEN_MIN, current: None }
    }
}

impl ChunkLen {
    /// How long the next chunk may be.
    pub(crate) fn max(&self) -> usize {
        self.len_max
    }

    /// Records a chunk of that length that is about to be written.
    pub(crate) fn begin(&mut self, len: usize, now: Instant) {
        self.current = Some((len, now));
    }

    /// Whether a chunk is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Records that the chunk is written.
    pub(crate) fn end(&mut self, now: Instant) {
        let Some((len, begun)) = self.current.take() else { return };
        let time = now.saturating_duration_since(begun);
        // The last chunk of a frame is shorter, and says nothing of the socket.
        if time <= TIME_MAX / 2 && len == self.len_max {
            self.len_max = (2 * len).min(CHUNK_LEN_MAX);
        }
        if time > TIME_MAX {
            self.len_max = (self.len_max / 2).max(CHUNK_LEN_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of a socket that takes so many bytes a microsecond, in KiB.
    fn chunks(chunk_len: &mut ChunkLen, bytes_per_us: u64) -> Vec<usize> {
        let mut now = Instant::now();
        let chunk = |_| {
            let len = chunk_len.max();
            chunk_len.begin(len, now);
            now += Duration::from_micros(len as u64 / bytes_per_us);
            chunk_len.end(now);
            len >> 10
        };
        (0..6).map(chunk).collect()
    }

    #[test]
    fn a_chunk_takes_about_a_millisecond() {
        let mut chunk_len = ChunkLen::default();
        assert_eq!(chunks(&mut chunk_len, 4_000), [64, 128, 256, 512, 1024, 1024]);
        assert_eq!(chunks(&mut chunk_len, 300), [1024, 512, 256, 256, 256, 256]);
        assert_eq!(chunks(&mut chunk_len, 10), [256, 128, 64, 64, 64, 64]);
    }

    /// The length after a chunk of 128 KiB that took so long.
    fn len_after(time: Duration) -> usize {
        let (begun, len_max) = (Instant::now(), 2 * CHUNK_LEN_MIN);
        let mut chunk_len = ChunkLen { len_max, ..ChunkLen::default() };
        assert!(!chunk_len.is_writing());
        chunk_len.begin(len_max, begun);
        assert!(chunk_len.is_writing());
        chunk_len.end(begun + time);
        chunk_len.max()
    }

    #[test]
    fn chunks_double_within_half_a_millisecond_and_halve_beyond_a_whole_one() {
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(len_after(TIME_MAX / 2), 4 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX / 2 + nanosecond), 2 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX), 2 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX + nanosecond), CHUNK_LEN_MIN);
    }

    #[test]
    fn the_end_of_a_frame_says_nothing() {
        let (mut chunk_len, now) = (ChunkLen::default(), Instant::now());
        chunk_len.begin(CHUNK_LEN_MIN - 1, now);
        chunk_len.end(now);
        assert_eq!(chunk_len.max(), CHUNK_LEN_MIN);
    }
}
