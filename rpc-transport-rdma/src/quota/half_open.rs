//! Half-open clients: places of a worker that clients hold and have not proven.
//!
//! A client that offers an upgrade is given a place, receive slots and queue pairs before it has
//! shown that it can use them, and keeps them until its verdict or the handshake's timeout, which
//! is seconds. A client that offers and stays silent, again and again, would keep every place from
//! the others. So each address has a share of the places that are free: one address alone gets half
//! of them. What is proven is not counted, only what it leaves free.

use std::sync::Arc;

use rpc_core::quota::PeerKey;
use rpc_core::quota::{Bound, Charge, Quota};

/// Any address may have one although nothing is left beyond it, so that the last place is used.
const BOUND: Bound = Bound::Dynamic { floor: 1 };

/// The unproven places of a worker.
#[derive(Debug)]
pub(crate) struct HalfOpen(Arc<Quota<PeerKey>>);

/// An address has its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverShare {
    /// Its unproven places.
    pub(crate) held: u64,
}

impl HalfOpen {
    /// None at all.
    pub(crate) fn new() -> Self {
        Self(Quota::new(u64::MAX))
    }

    /// Takes a place for a client at `peer`, of which the worker has `taken`, proven or not, and
    /// `free`. Dropped, the charge counts no longer.
    ///
    /// # Errors
    ///
    /// Returns [`OverShare`] if the client's address has its share.
    pub(crate) fn try_take(
        &self,
        peer: PeerKey,
        taken: u64,
        free: u64,
    ) -> Result<Charge<PeerKey>, OverShare> {
        let share = self.0.share(peer, Bound::Fixed(u64::MAX));
        // Counted before it is compared: of two that come together at most too few get one.
        let charge = share.take(1);
        let held = share.held();
        let (total, max) = (taken.saturating_add(1), taken.saturating_add(free));
        // A peer without an address has no share, only what there is. Where nothing is free, the
        // client is to be told that.
        let has_share = free > 0 && peer != PeerKey::Local;
        if has_share && !BOUND.admits(held, total, max) {
            return Err(OverShare { held: held.saturating_sub(1) });
        }
        Ok(charge)
    }

    /// Returns the count of all addresses.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.0.total()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u8 = 16;

    fn peer(host: u8) -> PeerKey {
        PeerKey::V4([10, 0, 0, host])
    }

    /// Takes places until one is refused; those before are proven.
    fn fill(unproven: &HalfOpen, peer: PeerKey, proven: u64) -> Vec<Charge<PeerKey>> {
        let try_take = || {
            let taken = proven + unproven.count() as u64;
            let free = u64::from(PLACES).checked_sub(taken).filter(|free| *free > 0)?;
            unproven.try_take(peer, taken, free).ok()
        };
        std::iter::from_fn(try_take).take(PLACES.into()).collect()
    }

    #[test]
    fn each_address_gets_half_of_the_free_places() {
        for (proven, expected) in [(0, [8, 4]), (8, [4, 2]), (15, [1, 0]), (16, [0, 0])] {
            let unproven = HalfOpen::new();
            let silent = fill(&unproven, peer(2), proven);
            let other = fill(&unproven, peer(3), proven);
            assert_eq!([silent.len(), other.len()], expected, "beside {proven} that are proven");
            drop((silent, other));
            assert_eq!(unproven.count(), 0);
        }
    }

    #[test]
    fn a_peer_without_an_address_has_what_there_is() {
        assert_eq!(fill(&HalfOpen::new(), PeerKey::Local, 0).len(), usize::from(PLACES));
    }
}
