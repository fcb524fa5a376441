//! Copies of short frames, which lie together in blocks.
//!
//! A copy in memory of its own costs an allocation, and a second one as soon as it is cloned, which
//! prost does with each field of type `Bytes` that it encodes. The copies in a block share one
//! count of references instead. A block is used again once no copy is left in it.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Length of a block in bytes. A program that keeps one copy keeps its whole block.
const BLOCK_LEN: usize = 1 << 10;

/// Maximum length of a frame that lies in a block, in bytes. Four of them at least share a block.
pub const SHORT_LEN_MAX: usize = BLOCK_LEN / 4;

/// Number of blocks that a thread keeps. The replies of one read are all there at a time, 64 of 110
/// bytes in seven blocks.
const BLOCK_COUNT: usize = 16;

thread_local! {
    /// The thread's blocks. Frames of any connection lie in them.
    static BLOCKS: RefCell<Blocks> = RefCell::default();
}

/// The blocks of a thread, which are used in turn.
#[derive(Debug, Default)]
struct Blocks {
    /// The rest of each of them.
    rests: [BytesMut; BLOCK_COUNT],
    current: usize,
}

impl Blocks {
    /// Returns the rest of a block, `len` bytes at least.
    fn room(&mut self, len: usize) -> &mut BytesMut {
        let rest = &self.rests[self.current];
        // From its start, if nothing of it is in use.
        if rest.capacity() < len && !self.rests[self.current].try_reclaim(BLOCK_LEN) {
            self.current = (self.current + 1) % BLOCK_COUNT;
            let next = &mut self.rests[self.current];
            if !next.try_reclaim(BLOCK_LEN) {
                *next = BytesMut::with_capacity(BLOCK_LEN);
            }
        }
        &mut self.rests[self.current]
    }
}

/// Copies the bytes of a frame. A copy of up to 256 bytes lies in a block of 1 KiB with others,
/// which is free when all of them are dropped.
#[must_use]
pub fn copy_short(bytes: &[u8]) -> Bytes {
    copy_with_next(bytes, bytes.len())
}

/// Copies the first `len` bytes as [`copy_short`] does. Where they lie in a block, as many of those
/// behind them are copied with them as the block has room for.
///
/// # Panics
///
/// Panics if there are fewer.
#[must_use]
pub fn copy_with_next(bytes: &[u8], len: usize) -> Bytes {
    let alone = &bytes[..len];
    if len > SHORT_LEN_MAX {
        return Bytes::copy_from_slice(alone);
    }
    let copy = |blocks: &RefCell<Blocks>| {
        let mut blocks = blocks.borrow_mut();
        let rest = blocks.room(len);
        rest.extend_from_slice(&bytes[..bytes.len().min(rest.capacity())]);
        rest.split().freeze()
    };
    // A thread that is ending has no block.
    BLOCKS.try_with(copy).unwrap_or_else(|_| Bytes::copy_from_slice(alone))
}

/// The same bytes in memory of their own, if they may lie in a block. For messages that wait as
/// long as a peer likes: with what else the peer sends, each could keep a block, of which its
/// window counts nothing.
pub(crate) fn out_of_block(bytes: Bytes) -> Bytes {
    if bytes.len() > SHORT_LEN_MAX { bytes } else { Bytes::copy_from_slice(&bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_blocks_and_keep_what_they_are() {
        let lens = [0, 1, 100, SHORT_LEN_MAX, SHORT_LEN_MAX + 1, 7];
        let originals: Vec<Vec<u8>> =
            (0..=u8::MAX).map(|byte| vec![byte; lens[usize::from(byte) % lens.len()]]).collect();
        let copies: Vec<_> = originals.iter().map(|bytes| copy_short(bytes)).collect();
        assert_eq!(copies, originals);
        let [first, second] = [[1; 10], [2; 10]].map(|bytes| copy_short(&bytes));
        let is_next = second.as_ptr() == first.as_ptr().wrapping_add(first.len());
        let third = copy_short(&[3; 10]);
        assert!(is_next || third.as_ptr() == second.as_ptr().wrapping_add(second.len()));
    }

    #[test]
    fn what_follows_is_copied_as_far_as_the_block_goes() {
        let bytes: Vec<_> = (0..u8::MAX).cycle().take(3 * BLOCK_LEN).collect();
        for len in [0, 1, 100, SHORT_LEN_MAX] {
            // Kept, so that the next one lies in what is left, or in another block.
            let [first, second] = [len, SHORT_LEN_MAX].map(|len| copy_with_next(&bytes, len));
            assert!((len..=BLOCK_LEN).contains(&first.len()), "{}", first.len());
            assert_eq!(first, bytes[..first.len()]);
            assert_eq!(second, bytes[..BLOCK_LEN]);
            assert_eq!(copy_with_next(&bytes[..300], len)[..len], bytes[..len]);
        }
        assert_eq!(copy_with_next(&bytes, SHORT_LEN_MAX + 1), bytes[..=SHORT_LEN_MAX]);
    }

    #[test]
    fn a_block_without_copies_is_used_again() {
        let addresses: Vec<_> =
            (0..1000).map(|_| copy_short(&[7; SHORT_LEN_MAX]).as_ptr()).collect();
        let mut different = addresses.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), BLOCK_LEN / SHORT_LEN_MAX, "{different:?}");
    }

    #[test]
    fn blocks_are_used_in_turn() {
        let burst = || (0..BLOCK_COUNT * 4).map(|_| copy_short(&[7; SHORT_LEN_MAX])).collect();
        let copies: Vec<Bytes> = burst();
        let addresses: Vec<_> = copies.iter().map(|copy| copy.as_ptr()).collect();
        drop(copies);
        let again: Vec<Bytes> = burst();
        assert!(again.iter().all(|copy| addresses.contains(&copy.as_ptr())));
        // A block of which a copy is kept is given up for another one.
        let kept: Vec<Bytes> = (0..BLOCK_COUNT * 8).map(|_| copy_short(&[8; 200])).collect();
        assert!(again.iter().all(|copy| *copy == [7; SHORT_LEN_MAX][..]));
        assert!(kept.iter().all(|copy| *copy == [8; 200][..]));
    }

    #[test]
    fn a_kept_copy_is_not_written_over() {
        let kept: Vec<_> = (0..100_u8)
            .map(|byte| {
                let kept = copy_short(&[byte; 64]);
                // What comes between is dropped, and the block is not written again.
                (0..50).for_each(|_| drop(copy_short(&[0xff; SHORT_LEN_MAX])));
                kept
            })
            .collect();
        assert!((0..100_u8).zip(&kept).all(|(byte, kept)| *kept == vec![byte; 64]));
    }
}
