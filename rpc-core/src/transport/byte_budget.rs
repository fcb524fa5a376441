//! Bounds the bytes of a connection's large frames in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Bytes are counted by the KiB, so that 32 bits are enough for 4 TiB.
const UNIT: u64 = 1 << 10;

/// A budget of bytes, from which frames take shares in the order in which they ask, whatever their
/// lengths. A frame longer than the whole budget waits until no other frame has a share.
#[derive(Debug)]
pub struct ByteBudget {
    semaphore: Arc<Semaphore>,
    units: AtomicU32,
}

impl ByteBudget {
    /// A budget of `bytes_max`, by whole KiB and at least one.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let units = units_in(bytes_max);
        // Never more than a semaphore has, on 64 bits.
        let count = usize::try_from(units).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(count)), units: AtomicU32::new(units) }
    }

    /// Makes it a budget of `bytes_max` if that is less. To be called before anything is taken.
    pub fn lower(&self, bytes_max: u64) {
        let units = units_in(bytes_max);
        let before = self.units.fetch_min(units, Ordering::Relaxed);
        let excess = before.saturating_sub(units);
        self.semaphore.forget_permits(usize::try_from(excess).unwrap_or(usize::MAX));
    }

    /// A frame's share, if it is there at once.
    ///
    /// # Errors
    ///
    /// Returns `TryAcquireError` if it is not, or if the budget is closed.
    pub fn try_take(&self, len: usize) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.semaphore).try_acquire_many_owned(self.share(len))
    }

    /// A frame's share, once it is there.
    ///
    /// # Errors
    ///
    /// Returns `AcquireError` if the budget is closed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: only the position in the queue is lost.
    pub async fn take(&self, len: usize) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.semaphore).acquire_many_owned(self.share(len)).await
    }

    /// Returns the bytes that are taken, by whole KiB.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let free = u64::try_from(self.semaphore.available_permits()).unwrap_or(u64::MAX);
        u64::from(self.units.load(Ordering::Relaxed)).saturating_sub(free) * UNIT
    }

    /// Gives no more shares.
    pub fn close(&self) {
        self.semaphore.close();
    }

    fn share(&self, len: usize) -> u32 {
        let units = u32::try_from((len as u64).div_ceil(UNIT)).unwrap_or(u32::MAX);
        // No more than the whole budget: waiting for more permits than exist would never end.
        units.min(self.units.load(Ordering::Relaxed))
    }
}

fn units_in(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_the_budget_or_are_alone() {
        let budget = ByteBudget::new(u64::MAX);
        budget.lower(10_000);
        budget.lower(20_000);
        let kept = [budget.try_take(4_000), budget.try_take(5_000)];
        assert!(kept.iter().all(Result::is_ok));
        assert!(budget.try_take(1).is_err(), "9 KiB are taken by the KiB");
        assert_eq!(budget.taken(), 9 * UNIT);
        drop(kept);
        assert_eq!(budget.taken(), 0);
        let alone = budget.try_take(1 << 30).unwrap();
        assert!(budget.try_take(1).is_err());
        drop(alone);
        assert!(budget.try_take(1).is_ok());
        budget.close();
        assert_eq!(budget.try_take(1).unwrap_err(), TryAcquireError::Closed);
    }
}
