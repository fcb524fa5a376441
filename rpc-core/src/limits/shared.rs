//! A limit that holders share: it refuses by name, and says in the log when it is reached.

use parking_lot::Mutex;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;
use tonic::Status;

use crate::limits::quota::{Bound, Charge, Quota, Share};
use crate::policy::line_limit::Saturation;

/// The names of a limit and its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// Noun for the counted things.
    pub(crate) what: &'static str,
    /// The setting for all holders together.
    pub(crate) setting: &'static str,
    /// Noun for the holder, used in messages.
    pub(crate) holder: &'static str,
    /// The setting for one holder, where there is one.
    pub(crate) share_setting: Option<&'static str>,
}

/// A limit on something that a server has: calls, connections, memory.
#[derive(Debug)]
pub(crate) struct SharedLimit<K: Eq + Hash> {
    names: Names,
    quota: Arc<Quota<K>>,
    saturation: Mutex<Saturation>,
    /// True if the saturation is full, for holders that take something while there is room.
    is_full: AtomicBool,
}

/// A holder's share of a limit.
#[derive(Debug)]
pub(crate) struct LimitShare<K: Eq + Hash> {
    limit: Arc<SharedLimit<K>>,
    share: Arc<Share<K>>,
}

impl<K: Eq + Hash + Clone + Display> SharedLimit<K> {
    pub(crate) fn new(names: Names, max: u64) -> Arc<Self> {
        Self::with_quota(names, Quota::new(max))
    }

    /// A limit that keeps `max / part` for holders within their floor.
    pub(crate) fn with_reserve(names: Names, max: u64, part: NonZeroU64) -> Arc<Self> {
        Self::with_quota(names, Quota::with_reserve(max, part))
    }

    fn with_quota(names: Names, quota: Arc<Quota<K>>) -> Arc<Self> {
        let saturation = Mutex::default();
        Arc::new(Self { names, quota, saturation, is_full: AtomicBool::new(false) })
    }

    /// The part that holders beyond their floor share.
    pub(crate) fn lendable(&self) -> u64 {
        self.quota.lendable()
    }

    /// The holders that have something, and what each has.
    pub(crate) fn holdings(&self) -> Vec<(K, u64)> {
        self.quota.holdings()
    }

    /// Returns the total amount that exists.
    pub(crate) fn max(&self) -> u64 {
        self.quota.max()
    }

    /// Makes it another amount. What is taken already stays.
    pub(crate) fn set_max(&self, max: u64) {
        self.quota.set_max(max);
    }

    /// Returns the amount of all holders.
    pub(crate) fn total(&self) -> u64 {
        self.quota.total()
    }

    /// The share of a holder, which has `bound` from now on.
    pub(crate) fn share(self: &Arc<Self>, key: K, bound: Bound) -> LimitShare<K> {
        LimitShare { limit: Arc::clone(self), share: self.quota.share(key, bound) }
    }

    /// Logs, if it is time to, that the limit keeps something from `holder`, or from one that is
    /// not known.
    pub(crate) fn refused(&self, holder: Option<&K>) {
        let refused_count = {
            let mut saturation = self.saturation.lock();
            // Stored under the lock, as in `taken`: crossed stores would mark a full limit as free,
            // and `taken` would never log that it has room again.
            self.is_full.store(true, Ordering::Relaxed);
            saturation.handle_refusal(Instant::now().into_std())
        };
        let Some(refused_count) = refused_count else { return };
        let Names { what, setting, share_setting, .. } = self.names;
        let (max, total) = (self.max(), self.total());
        let (most_of, most) = match self.quota.largest() {
            Some((key, held)) => (key.to_string(), held),
            None => (String::new(), 0),
        };
        let refused = holder.map(tracing::field::display);
        tracing::warn!(
            target: "farcall::server",
            setting,
            share_setting,
            max,
            total,
            most_of,
            most,
            refused,
            refused_count,
            "the limit on {what} is reached",
        );
    }

    /// Logs, if it is time to, that the limit has room again.
    #[inline(always)]
    fn taken(&self) {
        if self.is_full.load(Ordering::Relaxed) {
            self.log_room();
        }
    }

    #[cold]
    fn log_room(&self) {
        let refused_count = {
            let mut saturation = self.saturation.lock();
            let refused_count = saturation.handle_taken(Instant::now().into_std());
            self.is_full.store(saturation.is_full(), Ordering::Relaxed);
            refused_count
        };
        if let Some(refused_count) = refused_count {
            let Names { what, setting, .. } = self.names;
            tracing::warn!(
                target: "farcall::server",
                setting, refused_count, "the limit on {what} has room again"
            );
        }
    }
}

impl<K: Eq + Hash + Clone + Display> LimitShare<K> {
    /// Takes `amount`.
    ///
    /// # Errors
    ///
    /// Returns a status if there is not as much, or not for this holder, with the limit and how to
    /// raise it.
    #[inline(always)]
    pub(crate) fn try_take(&self, amount: u64) -> Result<Charge<K>, Status> {
        match self.share.try_take(amount) {
            Ok(charge) => {
                self.limit.taken();
                Ok(charge)
            }
            Err(_) => Err(self.refuse(amount)),
        }
    }

    /// Takes `amount` as [`LimitShare::try_take`] does; the caller gives it back by
    /// [`LimitShare::remove`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LimitShare::try_take`].
    pub(crate) fn try_add(&self, amount: u64) -> Result<(), Status> {
        match self.share.try_add(amount) {
            Ok(()) => {
                self.limit.taken();
                Ok(())
            }
            Err(_) => Err(self.refuse(amount)),
        }
    }

    /// Takes `amount` of what exists already, whether there is as much or not; the caller gives it
    /// back by [`LimitShare::remove`].
    pub(crate) fn add(&self, amount: u64) {
        self.share.add(amount);
    }

    /// Gives back `amount`, which was taken.
    pub(crate) fn remove(&self, amount: u64) {
        self.share.remove(amount);
    }

    /// The holder.
    pub(crate) fn holder(&self) -> &K {
        self.share.key()
    }

    /// Returns the amount of the holder.
    pub(crate) fn held(&self) -> u64 {
        self.share.held()
    }

    /// The limit that this is a share of.
    pub(crate) fn limit(&self) -> &SharedLimit<K> {
        &self.limit
    }

    /// Returns true if the holder would get `amount` now. A refusal is not logged.
    pub(crate) fn admits(&self, amount: u64) -> bool {
        self.share.admits(amount)
    }

    /// Looks whether there is `amount` to spare, for what goes on without it: see
    /// [`Share::admits_spare`]. That it is refused is not logged.
    pub(crate) fn has_spare(&self, amount: u64) -> bool {
        self.share.admits_spare(amount)
    }

    /// Looks whether there is `amount`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LimitShare::try_take`].
    #[inline(always)]
    pub(crate) fn check(&self, amount: u64) -> Result<(), Status> {
        if self.share.admits(amount) { Ok(()) } else { Err(self.refuse(amount)) }
    }

    /// The status of a refusal, which is also logged. The caller must hold no lock that a log
    /// subscriber could take.
    #[cold]
    fn refuse(&self, amount: u64) -> Status {
        self.limit.refused(Some(self.share.key()));
        let Names { what, setting, holder, share_setting } = self.limit.names;
        let (held, total, max) = (self.share.held(), self.limit.total(), self.limit.max());
        let is_full = total.saturating_add(amount) > max;
        let share_setting = share_setting.map(|name| format!(" ({name})")).unwrap_or_default();
        Status::resource_exhausted(if is_full {
            format!(
                "the server has {total} {what}, of at most {max} ({setting}): no room for {amount}"
            )
        } else {
            format!(
                "the server has {total} {what}, of at most {max} ({setting}), and {held} of them \
                 are {holder}: {amount} more are over its share{share_setting}"
            )
        })
    }
}
