//! A peer's share of a pool of large buffers.
//!
//! All connections of a device have its pools in common. A buffer that is taken here counts as the
//! peer's until it is dropped: one to send from until the peer has released it, one that a frame
//! was read into until the application lets go of it. So it is the peer that holds much which
//! waits, and not its neighbours.

use std::sync::Arc;

use rpc_core::quota::PeerKey;
use rpc_core::quota::{Bound, Charge, Share};

use super::{LargeBuffer, Lent, PoolError, RegionPool};
use crate::quota::semaphore::PeerShare;

/// Divisor of a pool's size that bounds one peer's part of the lent memory: half of the memory that
/// is lent at most. A buffer that is offered does not come back before every peer has released it.
const LENT_PART: u64 = 4;

/// A pool, as connections of one peer may use it.
#[derive(Debug, Clone)]
pub(crate) struct PoolShare {
    pool: Arc<RegionPool>,
    share: PeerShare,
    /// Of lent memory.
    lent: Arc<Share<PeerKey>>,
}

impl RegionPool {
    /// Returns the share of a peer.
    pub(crate) fn share(self: &Arc<Self>, peer: PeerKey) -> PoolShare {
        let bound = match peer {
            PeerKey::Local => Bound::Fixed(u64::MAX),
            PeerKey::V4(_) | PeerKey::V6(_) => Bound::Fixed(self.bytes_max() / LENT_PART),
        };
        let (share, lent) = self.shares(peer, bound);
        PoolShare { pool: Arc::clone(self), share, lent }
    }
}

impl PoolShare {
    /// The registered memory that `bytes` lie in, if it was lent to an application and the peer
    /// may hold as much of such memory, and what that counts. A peer that holds none may hold
    /// memory of any length.
    pub(crate) fn claim_lent(&self, bytes: &[u8]) -> Option<(Lent, Charge<PeerKey>)> {
        let lent = self.pool.find_lent(bytes)?;
        let len = bytes.len() as u64;
        let charge = match self.lent.held() {
            0 => self.lent.take(len),
            _ => self.lent.try_take(len).ok()?,
        };
        Some((lent, charge))
    }

    /// Takes a buffer like [`RegionPool::try_take_at_once`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `RegionPool::try_take_at_once`, and [`PoolError::Exhausted`] also if
    /// the peer has its share.
    pub(crate) fn try_take_at_once(&self, len: usize) -> Result<LargeBuffer, PoolError> {
        self.pool.try_take_at_once_for(&self.share, len)
    }

    /// Takes a buffer like [`RegionPool::take`], and waits while the peer has its share.
    ///
    /// # Errors
    ///
    /// Returns the errors of `RegionPool::take`, and [`PoolError::OverShare`] if the peer has had
    /// its share for the pool's maximum wait.
    ///
    /// # Cancel safety
    ///
    /// Safe, like `RegionPool::take`.
    pub(crate) async fn take(&self, len: usize) -> Result<LargeBuffer, PoolError> {
        self.pool.take_for(&self.share, len).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rpc_core::quota::PeerKey;

    use super::*;
    use crate::memory::{Access, Handout, PoolRules};
    use crate::testing::scripted::ScriptedDevice;

    const MIB: usize = 1 << 20;

    fn pool() -> Arc<RegionPool> {
        let (access, handout) = (Access::Source, Handout::AsLeft);
        let (bytes_max, wait_max) = (64 * MIB as u64, Duration::from_secs(30));
        let rules = PoolRules { access, handout, bytes_max, wait_max };
        RegionPool::with_rules(&ScriptedDevice::new().device(), rules, &Arc::default())
    }

    fn share(pool: &Arc<RegionPool>, host: u8) -> PoolShare {
        pool.share(PeerKey::V4([10, 0, 0, host]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_gives_nothing_back_has_half_and_is_told_so() {
        let pool = pool();
        let (greedy, honest) = (share(&pool, 2), share(&pool, 3));
        let mut kept = Vec::new();
        let refused = loop {
            match greedy.take(4 * MIB).await {
                Ok(buffer) => kept.push(buffer),
                Err(error) => break error,
            }
        };
        assert_eq!(kept.len(), 8, "half of the pool");
        assert!(matches!(refused, PoolError::OverShare { held: 33_554_432, .. }), "{refused}");
        assert!(matches!(greedy.try_take_at_once(MIB), Err(PoolError::Exhausted { .. })));
        let before = tokio::time::Instant::now();
        let taken = [honest.take(8 * MIB).await, honest.take(8 * MIB).await];
        assert!(taken.iter().all(Result::is_ok) && before.elapsed().is_zero(), "{taken:?}");
        drop((kept, taken));
        assert_eq!((pool.bytes_in_use(), greedy.share.held(), honest.share.held()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_peer_that_releases_nothing_holds_half_of_what_may_be_lent() {
        let pool = pool();
        let lent = bytes::Bytes::from_owner(pool.lend(8 * MIB).await.unwrap());
        let greedy = share(&pool, 2);
        let held: Vec<_> = std::iter::from_fn(|| greedy.claim_lent(&lent)).collect();
        assert_eq!(held.len(), 2, "a quarter of the pool, whatever buffers it lies in");
        assert!(share(&pool, 3).claim_lent(&lent).is_some());
        drop(held);
        assert!(greedy.claim_lent(&lent).is_some());
        assert!(greedy.claim_lent(&[7; 100]).is_none(), "memory of the application's own");
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_as_long_as_the_pool_goes_to_a_peer_that_has_nothing() {
        let pool = pool();
        let whole = share(&pool, 2).take(64 * MIB).await.unwrap();
        let error = share(&pool, 3).take(MIB).await.unwrap_err();
        assert!(matches!(error, PoolError::Exhausted { .. }), "no share is the reason: {error}");
        drop(whole);
        share(&pool, 3).take(64 * MIB).await.unwrap();
    }
}
