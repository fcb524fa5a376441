//! The SRQ quota: a worker's receive slots, divided between its connections by a dynamic threshold.
//!
//! Each connection holds the smallest window and the reserve from its beginning to its end, and
//! windows grow out of what is free. A window may be a *quarter of what is free* beyond the margin
//! for new connections, whichever connection asks: with few busy connections that is more than they
//! may have by the configuration, with many it falls for all alike, and it settles where all are
//! equal and a quarter of one more window for each is still free. This is how switches share their
//! buffers (Choudhury and Hahne, dynamic thresholds, 1998); it needs to know nothing of who is
//! active.
//!
//! [`SlotQuota`] is pure; [`SharedQuota`] puts it under a lock that is taken when a window changes,
//! and beside it the limit that connections look at with every grant.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::MIN_RECEIVE_SLOTS;
use crate::proto::flow::credits::{RESERVE, WINDOW_MIN};

/// What a connection holds as long as it lives.
pub(crate) const BASE: u32 = WINDOW_MIN + RESERVE;

// What the rule for `rdma.receive_slots` says in words.
const _: () = assert!(BASE == MIN_RECEIVE_SLOTS as u32);

/// A window is at most this part of what is free. A larger part would serve fewer connections
/// well, a smaller one leaves more idle: with N busy ones 4 / (4 + N) of the slots.
pub(crate) const PART: u32 = 4;

/// Newcomers have at most this part of all slots to themselves: 85 of them at once by default.
pub(crate) const MARGIN_PART: u32 = 4;

/// Who has how many slots. Pure.
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
        if self.count >= self.count_max || self.available() < BASE {
            return Err(Full { count: self.count, free: self.available() });
        }
        self.count += 1;
        self.free -= BASE;
        Ok(())
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

    /// Whether idle connections should return what they hold: newcomers find less than the margin.
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

    /// How many connections have a place, and for how many more there is one.
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
        // A quota is whole between any two statements that could panic.
        self.quota.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether a window could not grow since this was last asked.
    pub(crate) fn take_pressed(&self) -> bool {
        self.is_pressed.load(Ordering::Relaxed) && self.is_pressed.swap(false, Ordering::Relaxed)
    }
}
