//! The length of large frames' chunks while no small frame shares the connection.
//!
//! A small frame waits behind the chunk that is being written, which calls for short chunks. Long
//! chunks cost fewer system calls and fewer packets. A chunk is therefore as long as the socket
//! accepts within a millisecond: the length doubles while the socket is faster, and halves when it
//! is slower.
//!
//! Over loopback, 1 MiB messages are a fifth faster than in chunks of 64 KiB. They cost a sixth
//! more CPU time than blocking reads and writes; in chunks of 64 KiB they cost half as much again.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

/// Minimum chunk length in bytes. It delays a small frame by 65 us at 1 GB/s.
pub(crate) const CHUNK_LEN_MIN: usize = 64 << 10;

/// Maximum chunk length in bytes, which also bounds a record. Writing one takes as long as encoding
/// it did: 0.2 ms if copying is the only cost.
pub(crate) const CHUNK_LEN_MAX: usize = 1 << 20;

/// Target for the time to write a chunk.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The length of the next chunk.
#[derive(Debug)]
pub(crate) struct ChunkLen {
    len_max: usize,
    /// The length of the chunk in progress, and the start of its write.
    current: Option<(usize, Instant)>,
}

impl Default for ChunkLen {
    fn default() -> Self {
        Self { len_max: CHUNK_LEN_MIN, current: None }
    }
}

impl ChunkLen {
    /// Returns the maximum length of the next chunk.
    pub(crate) fn max(&self) -> usize {
        self.len_max
    }

    /// Records a chunk of `len` bytes that is about to be written.
    pub(crate) fn begin(&mut self, len: usize, now: Instant) {
        self.current = Some((len, now));
    }

    /// Returns true while a chunk is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Records that the chunk is written.
    pub(crate) fn end(&mut self, now: Instant) {
        let Some((len, begun)) = self.current.take() else { return };
        let time = now.saturating_duration_since(begun);
        // The last chunk of a frame is shorter, so its time reveals nothing about the socket.
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

    /// Returns the chunk lengths for a socket that accepts this many bytes per microsecond, in KiB.
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

    /// Returns the length after a chunk of 128 KiB took this long.
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
    fn chunks_double_within_half_the_time_and_halve_beyond_it() {
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(len_after(TIME_MAX / 2), 4 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX / 2 + nanosecond), 2 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX), 2 * CHUNK_LEN_MIN);
        assert_eq!(len_after(TIME_MAX + nanosecond), CHUNK_LEN_MIN);
    }

    #[test]
    fn the_last_chunk_of_a_frame_does_not_count() {
        let (mut chunk_len, now) = (ChunkLen::default(), Instant::now());
        chunk_len.begin(CHUNK_LEN_MIN - 1, now);
        chunk_len.end(now);
        assert_eq!(chunk_len.max(), CHUNK_LEN_MIN);
    }
}
