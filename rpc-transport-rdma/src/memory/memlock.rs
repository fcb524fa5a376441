//! The memory pinned under `RLIMIT_MEMLOCK`, and the callers that may pin more.
//!
//! `RLIMIT_MEMLOCK` counts all of a process's registrations, so a pool that meets it asks the
//! others to let go of what they keep unused, and then waits until memory is given back.
//!
//! Whether waiting helps is whether anything was pinned that can be given back, and that must be
//! known exactly: waiting when nothing is pinned would hang; failing when something is about to be
//! freed would be spurious. So what is pinned is counted from the moment it is until it is
//! deregistered, wherever it is held, and a caller that met the limit tries again while no other
//! registers: what others have pinned for a moment, or are just evicting, would look like memory
//! that is gone for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The registrations that pools under one limit have and make.
#[derive(Debug, Default)]
pub(super) struct Memlock {
    /// Told when a buffer of any pool comes back, and when anything is deregistered.
    pub(super) freed: Notify,
    permits: Arc<RwLock<()>>,
    pinned_count: AtomicUsize,
}

/// A way to register memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    /// While others may register too, as long as no caller has met the limit.
    Shared,
    /// While no other caller registers, after the limit was met.
    Exclusive,
}

/// The right to register in some mode, until it is dropped.
#[derive(Debug)]
pub(super) enum RegistrationPermit {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
}

impl RegistrationPermit {
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Exclusive { .. })
    }
}

/// Counts as pinned for as long as it exists; to be dropped after what it counts.
#[derive(Debug)]
pub(super) struct Pinned(Arc<Memlock>);

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.pinned_count.fetch_sub(1, Ordering::SeqCst);
        self.0.freed.notify_waiters();
    }
}

impl Memlock {
    /// Waits for a permit, in the order of asking.
    pub(super) async fn permit(&self, mode: LockMode) -> RegistrationPermit {
        let permits = Arc::clone(&self.permits);
        match mode {
            LockMode::Shared => RegistrationPermit::Shared { _guard: permits.read_owned().await },
            LockMode::Exclusive => {
                RegistrationPermit::Exclusive { _guard: permits.write_owned().await }
            }
        }
    }

    /// A permit, if it is there at once.
    pub(super) fn try_permit(&self, mode: LockMode) -> Option<RegistrationPermit> {
        let permits = Arc::clone(&self.permits);
        Some(match mode {
            LockMode::Shared => {
                RegistrationPermit::Shared { _guard: permits.try_read_owned().ok()? }
            }
            LockMode::Exclusive => {
                RegistrationPermit::Exclusive { _guard: permits.try_write_owned().ok()? }
            }
        })
    }

    /// Counts something that has just been pinned. The caller holds a permit.
    pub(super) fn pin(self: &Arc<Self>) -> Pinned {
        self.pinned_count.fetch_add(1, Ordering::SeqCst);
        Pinned(Arc::clone(self))
    }

    /// Returns true if anything is pinned, so that waiting may help. Under an exclusive permit the
    /// answer can only change from true to false.
    pub(super) fn has_pinned(&self) -> bool {
        self.pinned_count.load(Ordering::SeqCst) > 0
    }
}
