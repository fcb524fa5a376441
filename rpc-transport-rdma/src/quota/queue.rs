//! A fair wait queue: which claim on a shared resource is granted next.
//!
//! ```text
//!   try_take ──admitted──> held ──give_back──> free
//!   join ──> waiting ──next──> held
//!               └──leave──> gone
//! ```
//! Each holder may have as much as its [`Bound`] says: by the dynamic threshold one greedy holder
//! alone gets half. A holder that has nothing may always have one claim, however long, since a
//! share shorter than one claim would stop that holder for ever.
//!
//! The claims of one holder are served in order. Between holders the order of asking decides, too,
//! with one exception: a holder that has less than the one that waits before it is served first.
//! A greedy holder that waits for its own share therefore delays no other holder, and the claims
//! of a holder that has nothing are never overtaken, so that small claims cannot starve a long one.
//!
//! Pure: what waits is a number, and whether it is a task is decided elsewhere.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use rpc_core::quota::Bound;

/// A holder's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim<K> {
    pub(crate) holder: K,
    /// Bound on the holder's amount.
    pub(crate) bound: Bound,
    pub(crate) amount: u64,
}

/// A claim that waits. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket<K> {
    pub(crate) holder: K,
    pub(crate) number: u64,
}

/// A resource, what its holders have of it, and the claims that wait.
///
/// A holder that has nothing and waits for nothing has no entry, so that the table is bounded by
/// the claims that exist.
#[derive(Debug)]
pub(crate) struct FairQueue<K> {
    max: u64,
    total: u64,
    holders: HashMap<K, Holder>,
    /// The first claim of every holder that waits, in the order of asking.
    heads: BTreeMap<u64, K>,
    last_number: u64,
}

#[derive(Debug, Default)]
struct Holder {
    held: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    bound: Bound,
    amount: u64,
}

impl<K: Copy + Eq + Hash> FairQueue<K> {
    /// A resource of `max`, of which nothing is taken.
    pub(crate) fn new(max: u64) -> Self {
        let (holders, heads) = (HashMap::new(), BTreeMap::new());
        Self { max, total: 0, holders, heads, last_number: 0 }
    }

    /// Returns the total amount that exists.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Returns the amount that all holders have.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns true if `amount` is free for some holder.
    pub(crate) fn has_room(&self, amount: u64) -> bool {
        self.total.checked_add(amount).is_some_and(|total| total <= self.max)
    }

    /// Returns the amount of one holder.
    pub(crate) fn held(&self, holder: K) -> u64 {
        self.holders.get(&holder).map_or(0, |entry| entry.held)
    }

    /// Takes what is claimed, unless it has to wait; then nothing is taken.
    pub(crate) fn try_take(&mut self, claim: Claim<K>) -> bool {
        let Claim { holder, bound, amount } = claim;
        let entry = self.holders.get(&holder);
        if entry.is_some_and(|entry| !entry.waiting.is_empty()) {
            return false;
        }
        let held = entry.map_or(0, |entry| entry.held);
        // All that wait have asked before.
        let least = self.heads.values().map(|holder| self.held(*holder)).min();
        let may = self.admits(held, bound, amount) && !is_unfair(held, amount, least);
        if may {
            self.take(holder, amount);
        }
        may
    }

    /// Puts a claim in line; `None` when there will never be as much. [`FairQueue::next`] is due
    /// after this: the claim may be served at once.
    pub(crate) fn join(&mut self, claim: Claim<K>) -> Option<Ticket<K>> {
        let Claim { holder, bound, amount } = claim;
        if amount > self.max {
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        let waiting = &mut self.holders.entry(holder).or_default().waiting;
        waiting.push_back(Waiting { number, bound, amount });
        if waiting.len() == 1 {
            self.heads.insert(number, holder);
        }
        Some(Ticket { holder, number })
    }

    /// Takes a claim out of the line; false when it does not wait. [`FairQueue::next`] is due after
    /// this: others may have waited behind it.
    pub(crate) fn leave(&mut self, ticket: Ticket<K>) -> bool {
        let Ticket { holder, number } = ticket;
        let Some(entry) = self.holders.get_mut(&holder) else { return false };
        let Ok(index) = entry.waiting.binary_search_by_key(&number, |waiting| waiting.number)
        else {
            return false;
        };
        entry.waiting.remove(index);
        if index == 0 {
            self.heads.remove(&number);
            self.heads.extend(entry.waiting.front().map(|next| (next.number, holder)));
        }
        self.forget_if_idle(holder);
        true
    }

    /// Gives back what a holder has taken. [`FairQueue::next`] is due after this.
    pub(crate) fn give_back(&mut self, holder: K, amount: u64) {
        let Some(entry) = self.holders.get_mut(&holder) else { return };
        entry.held = entry.held.saturating_sub(amount);
        self.total = self.total.saturating_sub(amount);
        self.forget_if_idle(holder);
    }

    /// Serves the next claim that waits and is admitted now, and gives its amount. To be called
    /// until it gives nothing.
    pub(crate) fn next(&mut self) -> Option<(Ticket<K>, u64)> {
        let mut least = None;
        let mut found = None;
        for (number, holder) in &self.heads {
            let Some(entry) = self.holders.get(holder) else { continue };
            let Some(first) = entry.waiting.front() else { continue };
            let is_admitted = self.admits(entry.held, first.bound, first.amount);
            if is_admitted && !is_unfair(entry.held, first.amount, least) {
                found = Some((Ticket { holder: *holder, number: *number }, first.amount));
                break;
            }
            least = Some(least.map_or(entry.held, |least: u64| least.min(entry.held)));
            if least == Some(0) {
                break;
            }
        }
        let (ticket, amount) = found?;
        self.take(ticket.holder, amount);
        self.leave(ticket);
        Some((ticket, amount))
    }

    /// Returns true if a holder of `held` may have `amount` more.
    fn admits(&self, held: u64, bound: Bound, amount: u64) -> bool {
        // What a holder has is part of the total, so that no sum overflows if there is room.
        let (after, total) = (held.saturating_add(amount), self.total.saturating_add(amount));
        self.has_room(amount) && (held == 0 || bound.admits(after, total, self.max))
    }

    fn take(&mut self, holder: K, amount: u64) {
        self.total += amount;
        self.holders.entry(holder).or_default().held += amount;
    }

    fn forget_if_idle(&mut self, holder: K) {
        let is_idle = |entry: &Holder| entry.held == 0 && entry.waiting.is_empty();
        if self.holders.get(&holder).is_some_and(is_idle) {
            self.holders.remove(&holder);
        }
    }
}

/// Returns true if a holder of `held` would then have more than `least`, which a holder has that
/// waited longer.
fn is_unfair(held: u64, amount: u64, least: Option<u64>) -> bool {
    least.is_some_and(|least| held.saturating_add(amount) > least)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
