//! A piece of a response that h2 holds until it is written.
//!
//! A piece is made before the client's window has room for it, and h2 drops the response once it
//! has the last piece. The piece itself therefore owns its charge, and counts as waiting. h2 drops
//! it when it is written or its stream is reset, not earlier.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use rpc_core::memory::MemoryCharge;

use super::flow::Flowing;
use super::held::ENDED_HELD;

/// Bytes of a response that the client has not taken yet.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    /// The bytes' charge against the server's budget.
    _charge: MemoryCharge,
    /// The rest of the charge of the call that this piece completes.
    call: Option<MemoryCharge>,
    flowing: Arc<Flowing>,
}

impl Piece {
    /// Creates a piece, which waits for its client from now on.
    pub(super) fn new(bytes: Bytes, charge: MemoryCharge, flowing: Arc<Flowing>) -> Self {
        flowing.begin_wait();
        Self { bytes, _charge: charge, call: None, flowing }
    }

    /// Holds the rest of the call's charge until this piece is written.
    pub(super) fn hold(&mut self, mut call: Option<MemoryCharge>) {
        if let Some(call) = &mut call {
            call.set(ENDED_HELD);
        }
        self.call = call;
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.flowing.end_wait();
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    /// Called by h2 when it has written `len` bytes.
    fn advance(&mut self, len: usize) {
        self.bytes.advance(len);
        self.flowing.taken(len);
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::policy::progress::Flow;

    use super::*;

    #[test]
    fn a_piece_waits_until_dropped_and_counts_written_bytes() {
        let flowing = Arc::<Flowing>::default();
        let bytes = Bytes::from_static(&[7; 10]);
        let mut piece = Piece::new(bytes, MemoryCharge::default(), Arc::clone(&flowing));
        let flow = || flowing.flows().sending;
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 0 });
        piece.advance(4);
        assert_eq!((piece.remaining(), piece.chunk().len()), (6, 6));
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 4 });
        // A reset: unwritten bytes do not count as progress.
        drop(piece);
        assert!(!flow().is_waiting);
        let later = Piece::new(Bytes::new(), MemoryCharge::default(), Arc::clone(&flowing));
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 4 });
        drop(later);
    }
}
