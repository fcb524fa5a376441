//! How long pieces of large frames are while no small frame shares the way with them.
//!
//! A short piece is what a small frame waits behind that comes first. A long one is one call into
//! the kernel, and fewer packets. So pieces are as long as a socket takes within a millisecond:
//! they double from one to the next while it takes them faster, and halve when it is slower.
//!
//! Over loopback, 1 MiB messages are a fifth faster so than in pieces of 64 KiB, and cost a sixth
//! more processor time than blocking reads and writes, instead of half as much again.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

/// The shortest: at 1 GB/s, 65 us that a small frame waits behind it.
pub(crate) const PIECE_LEN_MIN: usize = 64 << 10;

/// The longest, which is the longest that a record holds.
pub(crate) const CHUNK_LEN_MAX: usize = 1 << 20;

/// How long a piece may take to be written.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The length of the next piece.
#[derive(Debug)]
pub(crate) struct PieceLen {
    len_max: usize,
    /// The piece that is being written, and since when.
    current: Option<(usize, Instant)>,
}

impl Default for PieceLen {
    fn default() -> Self {
        Self { len_max: PIECE_LEN_MIN, current: None }
    }
}

impl PieceLen {
    /// How long the next piece may be.
    pub(crate) fn max(&self) -> usize {
        self.len_max
    }

    /// Records a piece of that length that is about to be written.
    pub(crate) fn begin(&mut self, len: usize, now: Instant) {
        self.current = Some((len, now));
    }

    /// Whether a piece is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Records that the piece is written.
    pub(crate) fn end(&mut self, now: Instant) {
        let Some((len, begun)) = self.current.take() else { return };
        let time = now.saturating_duration_since(begun);
        // The end of a frame is shorter, and says nothing.
        if time <= TIME_MAX / 2 && len == self.len_max {
            self.len_max = (2 * len).min(CHUNK_LEN_MAX);
        }
        if time > TIME_MAX {
            self.len_max = (self.len_max / 2).max(PIECE_LEN_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a socket that takes so many bytes a microsecond, in KiB.
    fn pieces(piece_len: &mut PieceLen, bytes_per_us: u64) -> Vec<usize> {
        let mut now = Instant::now();
        let piece = |_| {
            let len = piece_len.max();
            piece_len.begin(len, now);
            now += Duration::from_micros(len as u64 / bytes_per_us);
            piece_len.end(now);
            len >> 10
        };
        (0..6).map(piece).collect()
    }

    #[test]
    fn a_piece_takes_about_a_millisecond() {
        let mut piece_len = PieceLen::default();
        assert_eq!(pieces(&mut piece_len, 4_000), [64, 128, 256, 512, 1024, 1024]);
        assert_eq!(pieces(&mut piece_len, 300), [1024, 512, 256, 256, 256, 256]);
        assert_eq!(pieces(&mut piece_len, 10), [256, 128, 64, 64, 64, 64]);
    }

    #[test]
    fn the_end_of_a_frame_says_nothing() {
        let (mut piece_len, now) = (PieceLen::default(), Instant::now());
        piece_len.begin(PIECE_LEN_MIN - 1, now);
        piece_len.end(now);
        assert_eq!(piece_len.max(), PIECE_LEN_MIN);
    }
}
