//! Pools that share what the process may pin.
//!
//! `RLIMIT_MEMLOCK` counts all of a process's registrations, so a pool that meets it asks the
//! others to let go of what they keep unused, and then waits until somebody gives something back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::RegionPool;

/// Pools that make way for each other.
#[derive(Debug, Default)]
pub struct LockGroup {
    pools: Mutex<Vec<Weak<RegionPool>>>,
    /// Told when a buffer of any of them comes back.
    pub(super) freed: Notify,
}

impl LockGroup {
    pub(super) fn join(&self, pool: &Arc<RegionPool>) {
        self.pools().push(Arc::downgrade(pool));
    }

    /// Deregisters everything that no buffer uses; false when there was nothing.
    pub(super) fn reclaim(&self) -> bool {
        let regions: Vec<_> = self.live().iter().flat_map(|pool| pool.evict_all()).collect();
        !regions.is_empty()
    }

    /// Whether anybody uses a buffer, so that waiting may help.
    pub(super) fn is_in_use(&self) -> bool {
        self.live().iter().any(|pool| pool.bytes_in_use() > 0)
    }

    fn live(&self) -> Vec<Arc<RegionPool>> {
        self.pools().iter().filter_map(Weak::upgrade).collect()
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Weak<RegionPool>>> {
        // A list is whole between any two statements.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
