//! The remaining work of one caller of a load.

use std::time::{Duration, Instant};

use super::load::Span;

/// Number of messages of a stream between two reads of the clock, which costs about as much as a
/// message.
const MESSAGES_PER_LOOK: u64 = 64;

/// One caller's remaining and finished work.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    limit: Limit,
    done: u64,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    Count(u64),
    Until(Instant),
}

impl Quota {
    /// The share of `span`, which begins at `start`, of one of `caller_count` callers.
    #[must_use]
    pub fn of(span: Span, start: Instant, caller_count: usize) -> Self {
        let limit = match span {
            Span::Calls(calls) => Limit::Count(calls.div_ceil(caller_count.max(1) as u64)),
            Span::Millis(millis) => Limit::Until(start + Duration::from_millis(millis)),
        };
        Self { limit, done: 0 }
    }

    /// Returns true if another call must begin at `now`, after the previous one has ended.
    #[must_use]
    pub fn wants_call(&self, now: Instant) -> bool {
        match self.limit {
            Limit::Count(count) => self.done < count,
            Limit::Until(end) => now < end,
        }
    }

    /// Returns true if the stream must take another message.
    #[must_use]
    pub fn wants_message(&self) -> bool {
        match self.limit {
            Limit::Count(count) => self.done < count,
            Limit::Until(end) => {
                !self.done.is_multiple_of(MESSAGES_PER_LOOK) || Instant::now() < end
            }
        }
    }

    /// Returns the number of calls that may begin together, at most `most`, for callers that send
    /// in batches.
    #[must_use]
    pub fn batch(&self, now: Instant, most: usize) -> usize {
        match self.limit {
            Limit::Count(count) => {
                usize::try_from(count.saturating_sub(self.done)).unwrap_or(most).min(most)
            }
            Limit::Until(end) => usize::from(now < end) * most,
        }
    }

    /// The quota of `callers` callers together.
    #[must_use]
    pub fn times(self, callers: usize) -> Self {
        let limit = match self.limit {
            Limit::Count(count) => Limit::Count(count.saturating_mul(callers as u64)),
            until @ Limit::Until(_) => until,
        };
        Self { limit, ..self }
    }

    /// Counts `count` calls or messages that have ended.
    pub fn add(&mut self, count: u64) {
        self.done += count;
    }

    /// Returns the number of ended calls or messages.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shared_out_and_rounded_up() {
        let now = Instant::now();
        let mut quota = Quota::of(Span::Calls(10), now, 4);
        assert_eq!(quota.batch(now, 2), 2);
        quota.add(2);
        assert!(quota.wants_call(now) && quota.wants_message());
        assert_eq!(quota.batch(now, 2), 1);
        quota.add(1);
        assert!(!quota.wants_call(now) && !quota.wants_message());
        assert_eq!(quota.batch(now, 2), 0);
        assert_eq!(quota.done(), 3);
        assert_eq!(Quota::of(Span::Calls(10), now, 4).times(4).batch(now, 20), 12);
    }

    #[test]
    fn a_time_ends_calls_at_once_and_messages_soon() {
        let start = Instant::now();
        let mut quota = Quota::of(Span::Millis(0), start, 1);
        assert!(!quota.wants_call(start));
        assert_eq!(quota.batch(start, 8), 0);
        quota.add(1);
        let mut taken = 1;
        while quota.wants_message() {
            quota.add(1);
            taken += 1;
        }
        assert_eq!(taken, MESSAGES_PER_LOOK);
        let quota = Quota::of(Span::Millis(60_000), start, 1);
        assert!(quota.wants_call(start) && quota.wants_message());
        assert_eq!(quota.batch(start, 8), 8);
    }
}
