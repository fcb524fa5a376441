//! A piece of a response, as h2 keeps it until it is written.
//!
//! A piece is made before the client's window has room for it, and the response is dropped once h2
//! has its last piece. So a piece itself has what its memory counts, and
//! waits for its client: h2 drops it when it is written or its stream is reset, and not before.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use rpc_core::memory::MemoryCharge;

use super::flow::Flowing;
use super::held::ENDED_HELD;

/// Bytes of a response that its client has not taken yet.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    /// What it counts in the server's budget.
    _charge: MemoryCharge,
    /// What is left of the call whose last piece this is.
    call: Option<MemoryCharge>,
    flowing: Arc<Flowing>,
}

impl Piece {
    /// A piece that waits for its client from now on.
    pub(super) fn new(bytes: Bytes, charge: MemoryCharge, flowing: Arc<Flowing>) -> Self {
        flowing.begin_wait();
        Self { bytes, _charge: charge, call: None, flowing }
    }

    /// Keeps what is left of the call until this piece is written.
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

    /// h2 has written as much.
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
    fn a_piece_waits_until_it_is_dropped_and_moves_as_it_is_written() {
        let flowing = Arc::<Flowing>::default();
        let bytes = Bytes::from_static(&[7; 10]);
        let mut piece = Piece::new(bytes, MemoryCharge::default(), Arc::clone(&flowing));
        let flow = || flowing.flows().sending;
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 0 });
        piece.advance(4);
        assert_eq!((piece.remaining(), piece.chunk().len()), (6, 6));
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 4 });
        // Reset: what was not written has not moved.
        drop(piece);
        assert!(!flow().is_waiting);
        let later = Piece::new(Bytes::new(), MemoryCharge::default(), Arc::clone(&flowing));
        assert_eq!(flow(), Flow { is_waiting: true, moved_bytes: 4 });
        drop(later);
    }
}
