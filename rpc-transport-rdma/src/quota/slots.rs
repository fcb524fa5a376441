//! The SRQ quota: a worker's receive slots, divided between its connections by a dynamic threshold.
//!
//! Each connection holds the smallest window and the reserve from its beginning to its end, and
//! windows grow out of what is free. A window may be a *quarter of what is free* beyond the margin
//! for new connections, whichever connection asks: with few busy connections that is more than they
//! may have by the configuration, with many it falls for all alike, and it settles where all are
//! equal and four windows are still free. This is how switches share their
//! buffers (Choudhury and Hahne, dynamic thresholds, 1998); it needs to know nothing of who is
//! active.
//!
//! [`SlotQuota`] is pure; [`SharedQuota`] puts it under a lock that is taken when a window changes,
//! and beside it the limit that connections look at with every grant.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::config::MIN_RECEIVE_SLOTS;

/// The slots besides the window that control messages may use: one would do, as
/// `proto::flow::credits` argues, and with two a peer that sends without pause gets its grants by
/// halves of its window.
pub(crate) const RESERVE: u32 = 2;

/// The smallest window, which idle connections have. An active connection outgrows it, because a
/// window of 1 can never piggyback its grants.
pub(crate) const WINDOW_MIN: u32 = 1;

/// Slots that a connection holds for as long as it lives.
pub(crate) const BASE: u32 = WINDOW_MIN + RESERVE;

// What the rule for `rdma.receive_slots` says in words.
const _: () = assert!(BASE == MIN_RECEIVE_SLOTS as u32);

/// A window is at most this part of what is free. A larger part would serve fewer connections
/// well, a smaller one leaves more idle: with N busy ones 4 / (4 + N) of the slots.
pub(crate) const PART: u32 = 4;

/// Newcomers have at most this part of all slots to themselves: 85 of them at once by default.
pub(crate) const MARGIN_PART: u32 = 4;

/// The slots of each connection. Pure.
#[derive(Debug)]
pub(crate) struct SlotQuota {
    slots: u32,
    free: u32,
    /// Of those that are free, as many as the device may not have.
    missing: u32,
    count: u32,
    count_max: u32,
    window_max: u32,
    /// The largest window for now; below `window_max` after the queue had run low.
    window_cap: u32,
}

/// Why a connection gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) count: u32,
    pub(crate) free: u32,
}

impl SlotQuota {
    pub(crate) fn new(slots: u32, count_max: u32, window_max: u32) -> Self {
        let window_max = window_max.max(WINDOW_MIN);
        let (free, missing, count) = (slots, 0, 0);
        Self { slots, free, missing, count, count_max, window_max, window_cap: window_max }
    }

    /// Takes the base of a new connection.
    pub(crate) fn admit(&mut self) -> Result<(), Full> {
        if !self.has_room() {
            return Err(Full { count: self.count, free: self.available() });
        }
        self.count += 1;
        self.free -= BASE;
        Ok(())
    }

    /// Returns true if there is room for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.count < self.count_max && self.available() >= BASE
    }

    /// Takes back all that a connection held: its base, and `extra` besides.
    pub(crate) fn leave(&mut self, extra: u32) {
        self.count -= 1;
        self.free += BASE + extra;
    }

    /// Takes at most `wanted` slots to make a window of `window` larger; gives how many.
    pub(crate) fn grow(&mut self, window: u32, wanted: u32) -> u32 {
        // What is taken lowers the limit: w + x <= (f - x) / PART.
        let fair = self.beyond_margin().saturating_sub(PART * window) / (PART + 1);
        let more = wanted.min(fair).min(self.window_cap.saturating_sub(window));
        self.free -= more;
        more
    }

    /// Takes back slots of a window that shrank.
    pub(crate) fn give_back(&mut self, count: u32) {
        self.free += count;
    }

    /// Takes out of what is promised what died with queue pairs, and puts back what was found.
    pub(crate) fn set_missing(&mut self, count: u32) {
        self.missing = count;
    }

    /// The largest window that a connection should have now.
    pub(crate) fn limit(&self) -> u32 {
        (self.beyond_margin() / PART).min(self.window_cap).max(WINDOW_MIN)
    }

    /// Returns true if idle connections should return slots, because newcomers find less than the
    /// margin.
    pub(crate) fn is_short(&self) -> bool {
        self.available() < self.margin()
    }

    /// The queue ran low: halves the largest window.
    pub(crate) fn squeeze(&mut self) {
        self.window_cap = (self.window_cap / 2).max(WINDOW_MIN);
    }

    /// The queue has not run low for a while: doubles the largest window.
    pub(crate) fn relax(&mut self) {
        self.window_cap = self.window_cap.saturating_mul(2).min(self.window_max);
    }

    pub(crate) fn promised(&self) -> u32 {
        self.slots - self.free
    }

    /// Returns the number of connections that have a place, and the number of free places.
    pub(crate) fn places(&self) -> (u32, u32) {
        (self.count, self.count_max.saturating_sub(self.count).min(self.free / BASE))
    }

    fn margin(&self) -> u32 {
        let newcomers = (self.count_max - self.count).saturating_mul(BASE);
        newcomers.min(self.slots / MARGIN_PART)
    }

    fn available(&self) -> u32 {
        self.free.saturating_sub(self.missing)
    }

    fn beyond_margin(&self) -> u32 {
        self.available().saturating_sub(self.margin())
    }
}

/// The slots of a worker as its connections see them.
#[derive(Debug)]
pub(crate) struct SharedQuota {
    quota: Mutex<SlotQuota>,
    limit: AtomicU32,
    window_max: u32,
    is_pressed: AtomicBool,
}

impl SharedQuota {
    pub(crate) fn new(quota: SlotQuota) -> Self {
        let (limit, window_max) = (AtomicU32::new(quota.limit()), quota.window_max);
        let is_pressed = AtomicBool::new(false);
        Self { quota: Mutex::new(quota), limit, window_max, is_pressed }
    }

    /// Looks at the quota.
    pub(crate) fn quota(&self) -> MutexGuard<'_, SlotQuota> {
        self.quota.lock()
    }

    /// Changes the quota.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut SlotQuota) -> R) -> R {
        let mut quota = self.quota();
        let result = change(&mut quota);
        // Under the lock, so that the last change is the last to be stored.
        self.limit.store(quota.limit(), Ordering::Relaxed);
        result
    }

    /// The largest window that a connection can ever have.
    pub(crate) fn window_max(&self) -> u32 {
        self.window_max
    }

    /// The largest window that a connection should have now.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Records that a window could not grow to its due size.
    pub(crate) fn press(&self) {
        self.is_pressed.store(true, Ordering::Relaxed);
    }

    /// Returns true if a window could not grow since the last call.
    pub(crate) fn take_pressed(&self) -> bool {
        self.is_pressed.load(Ordering::Relaxed) && self.is_pressed.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 slots for at most 4 connections with windows of at most 32.
    fn quota(connections: usize) -> SlotQuota {
        let mut quota = SlotQuota::new(100, 4, 32);
        (0..connections).for_each(|_| quota.admit().unwrap());
        quota
    }

    #[test]
    fn a_connection_needs_a_place_and_its_base() {
        let mut quota = quota(4);
        assert_eq!((quota.promised(), quota.places()), (4 * BASE, (4, 0)));
        assert_eq!(quota.admit(), Err(Full { count: 4, free: 100 - 4 * BASE }));
        assert_eq!(quota.grow(WINDOW_MIN, 5), 5);
        quota.leave(5);
        assert_eq!((quota.promised(), quota.places()), (3 * BASE, (3, 1)));
        let mut scarce = SlotQuota::new(BASE + 2, 100, 32);
        assert_eq!(scarce.places(), (0, 1));
        scarce.admit().unwrap();
        assert_eq!((scarce.places(), scarce.admit()), ((1, 0), Err(Full { count: 1, free: 2 })));
        scarce.leave(0);
        scarce.set_missing(2);
        scarce.admit().unwrap();
        scarce.leave(0);
        scarce.set_missing(3);
        assert_eq!(scarce.admit(), Err(Full { count: 0, free: BASE - 1 }));
        assert_eq!(SlotQuota::new(10 * BASE + 1, 100, 32).places(), (0, 10));
    }

    #[test]
    fn a_window_may_be_a_quarter_of_what_newcomers_leave() {
        // The margin is the base of all who may still come, or a quarter of the slots.
        let limits: Vec<_> = (0..5).map(|count| quota(count).limit()).collect();
        assert_eq!(limits, [(100 - 12) / 4, (97 - 9) / 4, (94 - 6) / 4, (91 - 3) / 4, 88 / 4]);
        assert_eq!(SlotQuota::new(100, 1000, 32).limit(), (100 - 25) / 4);
        assert_eq!(SlotQuota::new(1000, 4, 32).limit(), 32, "as the configuration has it");
        assert_eq!(SlotQuota::new(0, 4, 0).limit(), WINDOW_MIN);
    }

    /// The numbers in the documentation of `max_credits`.
    #[test]
    fn busy_default_connections_have_the_documented_windows() {
        let config = crate::RdmaConfig::default();
        let slots = u32::from(config.receive_slots);
        let smallest = |busy: usize| {
            let mut quota = SlotQuota::new(slots, config.max_connections, config.max_credits);
            let mut windows = vec![WINDOW_MIN; busy];
            (0..busy).for_each(|_| quota.admit().unwrap());
            // In turns of one slot, until no window grows.
            let mut more = true;
            while more {
                more = false;
                for window in &mut windows {
                    let count = quota.grow(*window, 1);
                    *window += count;
                    more |= count > 0;
                }
            }
            windows.into_iter().min()
        };
        assert_eq!([8, 18, 19, 64].map(smallest), [32, 32, 31, 9].map(Some));
        let mut quota = SlotQuota::new(slots, config.max_connections, config.max_credits);
        (0..config.max_connections).for_each(|_| quota.admit().unwrap());
        assert_eq!(quota.available(), 256);
    }

    #[test]
    fn what_a_window_takes_counts_as_taken() {
        let mut quota = quota(4);
        assert_eq!(quota.grow(3, 100), (88 - 4 * 3) / 5);
        assert_eq!(quota.promised(), 4 * BASE + 15);
        assert_eq!(quota.grow(18, 100), 0, "it has a quarter of what is free");
        quota.give_back(6);
        assert_eq!(quota.promised(), 4 * BASE + 9);
        assert_eq!(quota.grow(31, 100), 0);
        let mut ample = SlotQuota::new(1000, 4, 32);
        assert_eq!((ample.grow(20, 5), ample.grow(20, 100)), (5, 12));
    }

    #[test]
    fn slots_are_short_when_newcomers_find_less_than_their_margin() {
        let mut quota = SlotQuota::new(100, 100, 32);
        for (missing, is_short) in [(0, false), (75, false), (76, true), (1000, true)] {
            quota.set_missing(missing);
            assert_eq!(quota.is_short(), is_short, "{missing} are missing");
        }
    }

    #[test]
    fn the_largest_window_is_halved_and_doubled_within_its_bounds() {
        let mut quota = SlotQuota::new(1000, 4, 20);
        let squeezed = [(); 5].map(|()| {
            quota.squeeze();
            quota.limit()
        });
        assert_eq!(squeezed, [10, 5, 2, 1, 1]);
        let relaxed = [(); 6].map(|()| {
            quota.relax();
            quota.limit()
        });
        assert_eq!(relaxed, [2, 4, 8, 16, 20, 20]);
    }

    #[test]
    fn connections_see_the_limit_after_each_change() {
        let shared = SharedQuota::new(SlotQuota::new(1000, 4, 20));
        assert_eq!((shared.window_max(), shared.limit()), (20, 20));
        shared.change(SlotQuota::squeeze);
        assert_eq!((shared.window_max(), shared.limit()), (20, 10));
        assert!(!shared.take_pressed());
        shared.press();
        assert!(shared.take_pressed() && !shared.take_pressed(), "once");
    }
}
