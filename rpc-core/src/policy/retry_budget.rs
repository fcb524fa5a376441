//! The retry budget: how many calls may be retried after their connection ended.
//!
//! A call that kills the server, or a path that dies again and again, must not be doubled without
//! end. A bucket of tokens refills with time, so that a call that succeeds has nothing to count.
//! Finagle's `RetryBudget` is the model: a reserve that refills by the second, and gRPC's A6 for
//! the rule that replays stop before they become the load. Both also pay in a share for every
//! call; here the reserve alone is enough, because a call is replayed at most once.

use std::time::{Duration, Instant};

/// Bound on the idempotent calls that a channel makes once more after their connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayLimits {
    /// Maximum number at once.
    pub max_burst: u32,
    /// Number of them that come back in a second.
    pub per_second: u32,
}

impl ReplayLimits {
    /// The bound of a channel. The burst is what one connection has in flight by default
    /// ([`crate::Limits::max_calls`]): one death of a full connection may replay all of them. A
    /// full burst is there again after 10 s, the span over which Finagle's budget looks back by
    /// default.
    pub const DEFAULT: Self = Self { max_burst: 1024, per_second: 100 };

    /// None.
    pub const OFF: Self = Self { max_burst: 0, per_second: 0 };
}

/// The remaining replays.
#[derive(Debug)]
pub struct RetryBudget {
    limits: ReplayLimits,
    tokens: u32,
    /// Up to when tokens have been refilled.
    refilled: Instant,
}

impl RetryBudget {
    /// A full bucket.
    #[must_use]
    pub fn new(limits: ReplayLimits, now: Instant) -> Self {
        Self { limits, tokens: limits.max_burst, refilled: now }
    }

    /// Takes the right to one replay; false when there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.tokens == 0 {
            return false;
        }
        self.tokens -= 1;
        true
    }

    fn refill(&mut self, now: Instant) {
        let ReplayLimits { max_burst, per_second } = self.limits;
        let Some(interval) = Duration::from_secs(1).checked_div(per_second) else { return };
        let elapsed = now.saturating_duration_since(self.refilled);
        // More than a billion a second is as many as there are.
        let earned = elapsed.as_nanos().checked_div(interval.as_nanos());
        let earned = earned.and_then(|count| u32::try_from(count).ok());
        let tokens = earned.and_then(|earned| self.tokens.checked_add(earned));
        match tokens {
            Some(tokens) if tokens < max_burst => {
                self.refilled += interval * (tokens - self.tokens);
                self.tokens = tokens;
            }
            _ => {
                self.refilled = now;
                self.tokens = max_burst;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_refilled_by_the_second() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(ReplayLimits { max_burst: 2, per_second: 10 }, now);
        assert!(budget.take(now) && budget.take(now) && !budget.take(now));
        let later = now + Duration::from_millis(100);
        assert!(budget.take(later) && !budget.take(later));
        let much_later = now + Duration::from_secs(100);
        assert!(budget.take(much_later) && budget.take(much_later) && !budget.take(much_later));
    }

    #[test]
    fn none_are_none() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(ReplayLimits { max_burst: 0, per_second: 1000 }, now);
        assert!(!budget.take(now + Duration::from_secs(10)));
        let mut budget = RetryBudget::new(ReplayLimits { max_burst: 1, per_second: 0 }, now);
        assert!(budget.take(now) && !budget.take(now + Duration::from_secs(1000)));
    }

    #[test]
    fn a_bucket_in_use_has_its_burst_and_what_time_gave() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut budget = RetryBudget::new(ReplayLimits { max_burst: 8, per_second: 10 }, start);
        let mut taken = 0;
        // Two at a time, for one that comes back; half of an interval is not lost either.
        for step in 0..40 {
            let now = start + step * 150 * ms;
            taken += u32::from(budget.take(now)) + u32::from(budget.take(now));
        }
        assert_eq!(taken, 8 + 39 * 150 / 100);
    }

    #[test]
    fn time_beyond_a_full_bucket_is_not_saved() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut budget = RetryBudget::new(ReplayLimits { max_burst: 2, per_second: 10 }, start);
        assert!(budget.take(start) && budget.take(start));
        let full = start + 250 * ms;
        assert!(budget.take(full) && budget.take(full) && !budget.take(full));
        assert!(!budget.take(full + 50 * ms));
        assert!(budget.take(full + 100 * ms));
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_what_time_gave(
            max_burst in 0..20u32,
            per_second in any::<u32>(),
            waits in prop::collection::vec(0..300u64, 0..200),
        ) {
            let start = Instant::now();
            let per_second = per_second % 1000;
            let mut budget = RetryBudget::new(ReplayLimits { max_burst, per_second }, start);
            let (mut now, mut taken) = (start, 0);
            for ms in waits {
                now += Duration::from_millis(ms);
                taken += u64::from(budget.take(now));
                let most = (now - start).as_millis() * u128::from(per_second) / 999 + 1;
                prop_assert!(u128::from(taken) <= u128::from(max_burst) + most);
            }
        }
    }
}
