//! A resource that many holders share: how much each of them may take.
//!
//! A fixed part for each holder would be too small when few of them are busy and too large when
//! all are. A common pool without parts goes to the greediest holder. The *dynamic threshold* of
//! shared switch buffers lies between the two: a holder may have as much as is still free, or its
//! floor if that is more. One greedy holder alone gets half of the resource, `n` of them get
//! `1 / (n + 1)` each, and as much is left for a holder that comes later.
//!
//! The threshold alone depends on the order in which holders come: one after the other, each takes
//! half of the rest, and the last finds nothing. A quota with a *reserve* lends only what is beyond
//! it. The reserve serves holders within their floor, whatever the others hold.
//!
//! Used for calls, connections and bytes of memory. Nothing here waits, reads a clock or knows
//! what is counted. Taking and giving back are a few atomic operations; the lock is for making and
//! dropping holders, and for finding the largest holder.
//!
//! Most holders are peers, which a [`PeerKey`] tells apart.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::HashMap;
use std::fmt;
use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

/// The bound on one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The amount that is free, or `floor` if that is more. The floor is no guarantee: floors may
    /// add up to more than the quota.
    Dynamic {
        /// Amount that the holder may have although less is free.
        floor: u64,
    },
    /// A fixed amount, whatever the others have.
    Fixed(u64),
}

impl Bound {
    /// Returns the maximum amount of a holder while all holders together have `total` of `max`.
    #[must_use]
    pub fn limit(self, total: u64, max: u64) -> u64 {
        match self {
            Self::Dynamic { floor } => floor.max(max.saturating_sub(total)).min(max),
            Self::Fixed(limit) => limit.min(max),
        }
    }

    /// Returns true if a holder may have `held` when all holders together then have `total` of
    /// `max`.
    #[must_use]
    pub fn admits(self, held: u64, total: u64, max: u64) -> bool {
        total <= max && held <= self.limit(total, max)
    }
}

/// A bound that may become another one. Both parts are in one word, since a reader between two
/// stores would see a bound that was never set.
#[derive(Debug)]
struct AtomicBound(AtomicU64);

/// The word of a bound whose amount is a fixed one; the others have a floor.
const FIXED: u64 = 1 << 63;

impl AtomicBound {
    fn new(bound: Bound) -> Self {
        Self(AtomicU64::new(Self::word(bound)))
    }

    /// The amounts have 63 bits. One of more bits is without a bound, and comes back as
    /// `u64::MAX`.
    fn word(bound: Bound) -> u64 {
        match bound {
            Bound::Dynamic { floor } => floor.min(FIXED - 1),
            Bound::Fixed(limit) => limit.min(FIXED - 1) | FIXED,
        }
    }

    fn set(&self, bound: Bound) {
        self.0.store(Self::word(bound), Ordering::Relaxed);
    }

    fn get(&self) -> Bound {
        let amount = |bits| if bits == FIXED - 1 { u64::MAX } else { bits };
        match self.0.load(Ordering::Relaxed) {
            word if word & FIXED == 0 => Bound::Dynamic { floor: amount(word) },
            word => Bound::Fixed(amount(word & !FIXED)),
        }
    }
}

/// Why a holder gets nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Amount of the holder.
    pub held: u64,
    /// Amount of all holders.
    pub total: u64,
    /// Total amount that exists.
    pub max: u64,
}

/// A resource of which there is a fixed amount; `K` names its holders.
///
/// A holder that has nothing and is not in use has no entry here: the map cannot grow beyond the
/// holders that exist.
#[derive(Debug)]
pub struct Quota<K: Eq + Hash> {
    max: AtomicU64,
    /// The part of `max` that is kept for holders within their floor; none without a reserve.
    reserve_part: Option<NonZeroU64>,
    total: AtomicU64,
    shares: Mutex<HashMap<K, Weak<Share<K>>>>,
}

/// A holder's share of a quota. Every request for the same holder returns the same share.
#[derive(Debug)]
pub struct Share<K: Eq + Hash> {
    quota: Arc<Quota<K>>,
    key: K,
    bound: AtomicBound,
    held: AtomicU64,
}

/// An amount that was taken. Dropped, it is given back.
#[derive(Debug)]
#[must_use]
pub struct Charge<K: Eq + Hash> {
    share: Arc<Share<K>>,
    amount: u64,
}

impl<K: Eq + Hash + Clone> Quota<K> {
    /// A quota of `max`, of which nothing is taken.
    #[must_use]
    pub fn new(max: u64) -> Arc<Self> {
        Self::with_reserve_part(max, None)
    }

    /// The same with a reserve of `max / part`. A holder with a dynamic bound takes from it no more
    /// than its floor.
    #[must_use]
    pub fn with_reserve(max: u64, part: NonZeroU64) -> Arc<Self> {
        Self::with_reserve_part(max, Some(part))
    }

    fn with_reserve_part(max: u64, reserve_part: Option<NonZeroU64>) -> Arc<Self> {
        Arc::new(Self {
            max: AtomicU64::new(max),
            reserve_part,
            total: AtomicU64::new(0),
            shares: Mutex::default(),
        })
    }

    /// Returns the amount of all holders together. It exceeds the quota only after [`Share::take`].
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The holder of that name, which has `bound` from now on.
    #[must_use]
    pub fn share(self: &Arc<Self>, key: K, bound: Bound) -> Arc<Share<K>> {
        let mut shares = self.shares();
        if let Some(share) = shares.get(&key).and_then(Weak::upgrade) {
            share.bound.set(bound);
            return share;
        }
        let (quota, held) = (Arc::clone(self), AtomicU64::new(0));
        let bound = AtomicBound::new(bound);
        let share = Arc::new(Share { quota, key: key.clone(), bound, held });
        shares.insert(key, Arc::downgrade(&share));
        share
    }

    /// The holder that has most, and what it has; `None` when no holder has anything.
    #[must_use]
    pub fn largest(&self) -> Option<(K, u64)> {
        self.holdings().into_iter().max_by_key(|(_, held)| *held)
    }

    /// The holders that have something, and what each has, in no order.
    #[must_use]
    pub fn holdings(&self) -> Vec<(K, u64)> {
        // Dropping a share locks the map: what is upgraded here is dropped after the lock.
        let shares: Vec<_> = self.shares().values().filter_map(Weak::upgrade).collect();
        let holdings = shares.iter().map(|share| (share.key.clone(), share.held()));
        holdings.filter(|(_, held)| *held > 0).collect()
    }

    /// Returns the number of holders.
    #[must_use]
    pub fn share_count(&self) -> usize {
        self.shares().len()
    }
}

impl<K: Eq + Hash> Quota<K> {
    /// Returns the total amount that exists.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// The part that holders beyond their floor share: all but the reserve.
    #[must_use]
    pub fn lendable(&self) -> u64 {
        let max = self.max();
        max - self.reserve_part.map_or(0, |part| max / part)
    }

    /// Makes it a quota of `max`. What is taken stays taken, though it be more: then nothing else
    /// is, until enough was given back.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<K, Weak<Share<K>>>> {
        self.shares.lock()
    }
}

impl<K: Eq + Hash> Share<K> {
    /// The holder's name.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The quota that this is a share of.
    #[must_use]
    pub fn quota(&self) -> &Arc<Quota<K>> {
        &self.quota
    }

    /// Returns the amount of the holder.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns true if the holder would get `amount` now. Another holder may be faster.
    #[must_use]
    #[inline(always)]
    pub fn admits(&self, amount: u64) -> bool {
        self.may_add(self.held().saturating_add(amount), self.quota_total(), amount)
    }

    /// Returns true if the holder would get `amount` now, with half of the quota still free. For
    /// requests that can wait, so that they do not delay others.
    #[must_use]
    pub fn admits_spare(&self, amount: u64) -> bool {
        let total = self.quota_total().saturating_add(amount);
        total <= self.quota.max() / 2 && self.admits(amount)
    }

    /// Takes `amount` if the bound and the quota have room for it.
    ///
    /// # Errors
    ///
    /// Returns `Refusal` if they have not; then nothing is taken.
    #[inline(always)]
    pub fn try_take(self: &Arc<Self>, amount: u64) -> Result<Charge<K>, Refusal> {
        self.try_add(amount)?;
        Ok(Charge { share: Arc::clone(self), amount })
    }

    /// Takes `amount` as [`Share::try_take`] does; the caller gives it back by [`Share::remove`].
    #[inline(always)]
    pub(crate) fn try_add(&self, amount: u64) -> Result<(), Refusal> {
        let max = self.quota.max();
        // Before anything is added: sums of refused amounts could overflow.
        if amount > max {
            return Err(self.refusal());
        }
        // The holder's own count first. An attempt that fails is visible there for a moment, where
        // it can make another attempt of the same holder fail, but never one of another holder.
        let held = self.held.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        let (sum, mut total) = (&self.quota.total, self.quota_total());
        // `fetch_update` is a function of its own. The counts guard no other memory, so no order is
        // asked for.
        while self.may_add(held, total, amount) {
            let added = total.saturating_add(amount);
            match sum.compare_exchange_weak(total, added, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => total = other,
            }
        }
        self.held.fetch_sub(amount, Ordering::Relaxed);
        Err(self.refusal())
    }

    /// Takes `amount` whether there is room for it or not: for what exists already, which a
    /// refusal would not undo. What others may take becomes less all the same.
    pub fn take(self: &Arc<Self>, amount: u64) -> Charge<K> {
        self.add(amount);
        Charge { share: Arc::clone(self), amount }
    }

    #[inline(always)]
    fn may_add(&self, held: u64, total: u64, amount: u64) -> bool {
        let Some(total) = total.checked_add(amount) else { return false };
        match self.bound.get() {
            bound @ Bound::Dynamic { floor } if held > floor => {
                bound.admits(held, total, self.quota.lendable())
            }
            bound => bound.admits(held, total, self.quota.max()),
        }
    }

    fn quota_total(&self) -> u64 {
        self.quota.total.load(Ordering::Relaxed)
    }

    fn refusal(&self) -> Refusal {
        Refusal { held: self.held(), total: self.quota_total(), max: self.quota.max() }
    }

    /// Takes `amount` as [`Share::take`] does; the caller gives it back by [`Share::remove`].
    pub(crate) fn add(&self, amount: u64) {
        self.held.fetch_add(amount, Ordering::Relaxed);
        self.quota.total.fetch_add(amount, Ordering::Relaxed);
    }

    /// Gives back `amount`, which was taken.
    pub(crate) fn remove(&self, amount: u64) {
        self.held.fetch_sub(amount, Ordering::Relaxed);
        self.quota.total.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut shares = self.quota.shares();
        // The name may have a new share already, which was made between the drop of the last
        // reference to this one and the lock.
        if shares.get(&self.key).is_some_and(|share| share.strong_count() == 0) {
            shares.remove(&self.key);
        }
    }
}

impl<K: Eq + Hash> Charge<K> {
    /// Returns the amount that was taken.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Makes it `amount`, whether there is room for more or not, as [`Share::take`] does.
    pub fn set(&mut self, amount: u64) {
        match amount.checked_sub(self.amount) {
            Some(more) => self.share.add(more),
            None => self.share.remove(self.amount - amount),
        }
        self.amount = amount;
    }
}

impl<K: Eq + Hash> Drop for Charge<K> {
    fn drop(&mut self) {
        self.share.remove(self.amount);
    }
}

/// A peer, as far as its address tells it from others.
///
/// IPv6 networks give a host a /64, from which it may take as many addresses as it likes: all of
/// them are one peer. The port says nothing: a host has as many as it likes, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKey {
    /// An address of IPv4, also one that is mapped into IPv6.
    V4([u8; 4]),
    /// The first 64 bits of an address of IPv6.
    V6([u8; 8]),
    /// A peer without an address: it is on this machine, and came in over a Unix socket or within
    /// the process. Who may do that was decided by permissions.
    Local,
}

impl PeerKey {
    /// The peer at an address; without one it is on this machine.
    #[must_use]
    pub fn new(peer: Option<SocketAddr>) -> Self {
        match peer.map(|peer| peer.ip().to_canonical()) {
            None => Self::Local,
            Some(IpAddr::V4(address)) => Self::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(octets) => write!(f, "{}", IpAddr::from(*octets)),
            Self::V6(prefix) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(prefix);
                write!(f, "{}/64", Ipv6Addr::from(octets))
            }
            Self::Local => f.write_str("this machine"),
        }
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
