//! The contents of a buffer when its pool hands it out.
//!
//! A pool keeps buffers registered, and with them their contents: erasing every one would cost as
//! much as copying every message. It is necessary in two cases, and only for the bytes that
//! something was written to since they were zero:
//!
//! - A buffer of [`Access::Source`] is readable by its key as a whole, whatever part of it a frame
//!   takes. So what lies behind a frame is erased, and all of a buffer that an application fills
//!   itself, since the application may leave parts of it as they are. Buffers that frames of the
//!   same length are sent from cost nothing.
//! - A buffer to read into, on a device whose READs may complete short
//!   ([`Handout::Erased`]): the bytes that such a READ leaves out must not be another connection's.

use std::ops::Range;
use std::sync::Arc;

use super::block_store::{BlockStore, Placed};
use super::{Access, LargeBuffer};

/// The contents of the first bytes of a buffer at its handout, up to its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handout {
    /// Whatever the last user left there, since the next one writes all of it.
    AsLeft,
    /// Zeros.
    Erased,
}

/// Makes a buffer of `len` bytes of a block.
pub(super) fn hand_out(
    store: &Arc<BlockStore>,
    mut placed: Placed,
    len: usize,
    handout: Handout,
) -> LargeBuffer {
    let written = placed.block.written;
    let erased = erased(store.access, handout, len, written);
    placed.block.written = if erased.end == written { len } else { len.max(written) };
    let class_len = placed.class.bytes();
    let mut buffer = LargeBuffer::new(Arc::clone(store), placed, class_len);
    buffer[erased].fill(0);
    buffer.truncate(len);
    buffer
}

/// The bytes to be erased of a buffer that is handed out with `len` bytes, and whose first
/// `written` bytes may hold something. Pure.
fn erased(access: Access, handout: Handout, len: usize, written: usize) -> Range<usize> {
    let from = match handout {
        Handout::AsLeft => len,
        Handout::Erased => 0,
    };
    let to = match access {
        // Peers can read what lies behind the frame.
        Access::Source => written,
        Access::Windowed | Access::Sink | Access::RelaxedSink | Access::Eager => written.min(len),
    };
    from.min(to)..to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::RegionPool;
    use crate::testing::scripted::ScriptedDevice;

    const KIB: usize = 1024;

    fn pool(access: Access) -> Arc<RegionPool> {
        RegionPool::new(&ScriptedDevice::new().device(), access, 1 << 20)
    }

    /// All bytes that a key of the buffer opens.
    fn whole(mut buffer: LargeBuffer) -> Vec<u8> {
        buffer.extend_to_capacity();
        buffer.to_vec()
    }

    #[test]
    fn a_peer_that_reads_beyond_a_frame_finds_no_earlier_frame() {
        let pool = pool(Access::Source);
        pool.try_take(16 * KIB).unwrap().fill(7);
        let mut shorter = pool.try_take(10 * KIB).unwrap();
        shorter.fill(8);
        let bytes = whole(shorter);
        assert!(bytes[..10 * KIB].iter().all(|byte| *byte == 8));
        assert!(bytes[10 * KIB..].iter().all(|byte| *byte == 0), "an earlier frame is readable");
    }

    #[test]
    fn a_lent_buffer_holds_nothing_of_its_earlier_users() {
        let pool = pool(Access::Source);
        pool.try_take(16 * KIB).unwrap().fill(7);
        let lent = pool.try_lend(10 * KIB).unwrap();
        assert!(lent.iter().all(|byte| *byte == 0), "an earlier frame is in a lent buffer");
    }

    #[test]
    fn no_more_is_erased_than_must_be() {
        let nothing = |range: Range<usize>| range.is_empty();
        assert!(nothing(erased(Access::Source, Handout::AsLeft, 100, 100)), "the same length");
        assert!(nothing(erased(Access::Source, Handout::AsLeft, 100, 0)), "new memory");
        assert!(nothing(erased(Access::Sink, Handout::AsLeft, 50, 100)));
        assert!(nothing(erased(Access::Windowed, Handout::AsLeft, 50, 100)));
        assert_eq!(erased(Access::Source, Handout::AsLeft, 60, 100), 60..100);
        assert_eq!(erased(Access::Source, Handout::Erased, 60, 100), 0..100);
        assert_eq!(erased(Access::Sink, Handout::Erased, 60, 100), 0..60);
    }

    proptest! {
        #[test]
        fn no_user_sees_what_another_wrote(
            uses in prop::collection::vec((1usize..24 * KIB, any::<bool>()), 1..30),
        ) {
            let pool = pool(Access::Source);
            for (len, is_lent) in uses {
                if is_lent {
                    let mut lent = pool.try_lend(len).unwrap();
                    prop_assert!(lent.iter().all(|byte| *byte == 0));
                    lent.fill(9);
                } else {
                    let mut own = pool.try_take(len).unwrap();
                    own.fill(5);
                    let bytes = whole(own);
                    prop_assert!(bytes[len..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }
}
