//! When a worker last read its completion queue, so that other tasks can tell a silent peer from a
//! late worker.
//!
//! A peer of which nothing comes in may be silent, or this side may not have read what it said:
//! user code can block all threads of a runtime. The worker says when it has read everything and
//! when it goes to sleep, at the cost of a look at the clock a turn. Another task tells by that,
//! without the queue, whether something may lie unread. It speaks of the worker and not of one
//! connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A worker that is awake and has not read for so long is late, and what peers said may lie unread.
///
/// Longer than the 20 to 40 ms after which another task goes on with a worker that a handler
/// blocks, so that a worker which is handed over all the time still finds peers that are silent;
/// and far shorter than the default `keepalive.timeout`.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// What stands for the time of the last look while the worker sleeps.
const ASLEEP: u64 = u64::MAX;

/// When the worker last read everything there was. Written by the worker's task alone.
#[derive(Debug)]
pub(super) struct LastPoll {
    start: Instant,
    /// Microseconds since `start`, or [`ASLEEP`].
    at: AtomicU64,
}

impl LastPoll {
    /// A worker whose task has not begun is awake, and becomes late.
    pub(super) fn new(now: Instant) -> Self {
        Self { start: now, at: AtomicU64::new(0) }
    }

    /// Records that everything was read that had come by `now`.
    pub(super) fn handle_poll(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.start).as_micros();
        // 500,000 years.
        self.at.store(u64::try_from(micros).unwrap_or(ASLEEP - 1), Ordering::Relaxed);
    }

    /// Records that the worker has read everything, and that an event wakes it.
    pub(super) fn handle_sleep(&self) {
        self.at.store(ASLEEP, Ordering::Relaxed);
    }

    /// Whether the worker should have read by now; `None` while it sleeps.
    pub(super) fn is_late(&self, now: Instant) -> Option<bool> {
        let micros = self.at.load(Ordering::Relaxed);
        let at = self.start.checked_add(Duration::from_micros(micros));
        let age = at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        (micros != ASLEEP).then_some(age >= LATE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_awake_is_late_when_it_has_not_read_for_long() {
        let start = Instant::now();
        let last_poll = LastPoll::new(start);
        assert_eq!(last_poll.is_late(start), Some(false));
        assert_eq!(last_poll.is_late(start + LATE_AFTER), Some(true), "it has not begun");
        let now = start + Duration::from_secs(1000);
        last_poll.handle_poll(now);
        assert_eq!(last_poll.is_late(now + LATE_AFTER / 2), Some(false));
        assert_eq!(last_poll.is_late(now + LATE_AFTER), Some(true));
        // Another thread may have read the clock before the worker did.
        assert_eq!(last_poll.is_late(start), Some(false));
    }

    #[test]
    fn a_worker_that_sleeps_is_not_late_however_long() {
        let start = Instant::now();
        let last_poll = LastPoll::new(start);
        last_poll.handle_sleep();
        assert_eq!(last_poll.is_late(start + Duration::from_secs(1000)), None);
        last_poll.handle_poll(start);
        assert_eq!(last_poll.is_late(start + LATE_AFTER), Some(true));
    }
}
