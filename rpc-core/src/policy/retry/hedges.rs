//! Attempts side by side.
//!
//! ```text
//!   Due(at) ──sent──> Due(at + delay) ... ──the last one sent──> Done
//!      │ a failure that is not fatal: at once, or when the server says
//!      └──the server wants no more, or no budget is left──> Done
//! ```

use std::time::{Duration, Instant};

use super::Failure;
use super::config::HedgingPolicy;
use super::pushback::Pushback;

/// The attempts at one call under a [`HedgingPolicy`].
#[derive(Debug)]
pub struct Hedges {
    policy: HedgingPolicy,
    sent: u32,
    in_flight: u32,
    next: Next,
}

/// When the next attempt is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Due(Instant),
    Done,
}

/// What a failure means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Other attempts may still succeed.
    Pending,
    /// The call ends with this failure. Other attempts are given up.
    Ended,
}

impl Hedges {
    /// A call whose first attempt is due now.
    #[must_use]
    pub fn new(policy: HedgingPolicy, now: Instant) -> Self {
        Self { policy, sent: 0, in_flight: 0, next: Next::Due(now) }
    }

    /// When the next attempt is to be sent; `None` when there is none to come.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.next {
            Next::Due(at) => Some(at),
            Next::Done => None,
        }
    }

    /// Whether the first attempt was sent.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.sent > 0
    }

    /// An attempt is sent. Returns how many preceded it.
    pub fn sent(&mut self, now: Instant) -> u32 {
        self.sent += 1;
        self.in_flight += 1;
        self.next = match self.sent < self.policy.max_attempts {
            true => Next::Due(now + self.policy.hedging_delay),
            false => Next::Done,
        };
        self.sent - 1
    }

    /// No more attempts are sent: the budget is used up. The call ends unless one is in flight.
    pub fn give_up(&mut self) -> Outcome {
        self.next = Next::Done;
        self.outcome()
    }

    /// One of the attempts has failed.
    pub fn failed(&mut self, failure: &Failure, now: Instant) -> Outcome {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !self.policy.non_fatal_codes.contains(failure.code) {
            self.next = Next::Done;
            return Outcome::Ended;
        }
        if let Next::Due(_) = self.next {
            self.next = match failure.pushback {
                Pushback::Unsaid => Next::Due(now),
                Pushback::After(delay) => Next::Due(now + delay.min(LONGEST)),
                Pushback::Stop => Next::Done,
            };
        }
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        match (self.next, self.in_flight) {
            (Next::Done, 0) => Outcome::Ended,
            _ => Outcome::Pending,
        }
    }
}

/// The longest delay of a server: 2^31 ms, what its metadata can say. It keeps sums in range.
const LONGEST: Duration = Duration::from_millis(1 << 31);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn failure(code: Code, pushback: Pushback) -> Failure {
        Failure { code, pushback, is_repeatable: true }
    }

    #[test]
    fn attempts_follow_by_the_delay_and_the_last_failure_is_the_calls() {
        let start = Instant::now();
        let policy = HedgingPolicy::new().with_max_attempts(3).with_hedging_delay(10 * MS);
        let mut hedges = Hedges::new(policy, start);
        assert_eq!(hedges.next_deadline(), Some(start));
        assert_eq!(hedges.sent(start), 0);
        assert_eq!(hedges.next_deadline(), Some(start + 10 * MS));
        assert_eq!(hedges.sent(start + 10 * MS), 1);
        let (later, unsaid) = (start + 12 * MS, Pushback::Unsaid);
        let pending = hedges.failed(&failure(Code::Unavailable, unsaid), later);
        assert_eq!((pending, hedges.next_deadline()), (Outcome::Pending, Some(later)));
        assert_eq!(hedges.sent(later), 2);
        assert_eq!(hedges.next_deadline(), None);
        let pending = hedges.failed(&failure(Code::Unavailable, unsaid), later);
        assert_eq!(pending, Outcome::Pending);
        let ended = hedges.failed(&failure(Code::Unavailable, unsaid), later);
        assert_eq!(ended, Outcome::Ended);
    }

    #[test]
    fn a_fatal_code_ends_the_call_and_a_server_may_delay_or_stop_it() {
        let start = Instant::now();
        let policy = HedgingPolicy::new().with_max_attempts(4).with_hedging_delay(10 * MS);
        let hedges = || {
            let mut hedges = Hedges::new(policy, start);
            hedges.sent(start);
            hedges.sent(start + 10 * MS);
            hedges
        };
        let mut ended = hedges();
        let fatal = failure(Code::NotFound, Pushback::Unsaid);
        assert_eq!(ended.failed(&fatal, start), Outcome::Ended);
        assert_eq!(ended.next_deadline(), None);
        let mut delayed = hedges();
        let later = failure(Code::Unavailable, Pushback::After(50 * MS));
        assert_eq!(delayed.failed(&later, start), Outcome::Pending);
        assert_eq!(delayed.next_deadline(), Some(start + 50 * MS));
        let mut stopped = hedges();
        let stop = failure(Code::Unavailable, Pushback::Stop);
        assert_eq!(stopped.failed(&stop, start), Outcome::Pending);
        assert_eq!(stopped.next_deadline(), None);
        assert_eq!(stopped.failed(&stop, start), Outcome::Ended);
        let mut refused = hedges();
        assert_eq!(refused.give_up(), Outcome::Pending);
        assert_eq!(refused.next_deadline(), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Send,
        Fail(i32, Option<u32>),
        GiveUp,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Send),
            4 => (1..17, prop::option::of(0..100u32))
                .prop_map(|(code, ms)| Step::Fail(code, ms)),
            1 => Just(Step::GiveUp),
        ]
    }

    proptest! {
        /// A call that is not ended has an attempt in flight or one to come.
        #[test]
        fn a_call_ends_with_its_last_attempt_and_never_waits_for_none(
            max_attempts in 2..=5u32,
            steps in prop::collection::vec(step(), 0..40),
        ) {
            let now = Instant::now();
            let policy = HedgingPolicy::new()
                .with_max_attempts(max_attempts)
                .with_non_fatal_codes([Code::Unavailable, Code::Aborted, Code::Internal]);
            let mut hedges = Hedges::new(policy, now);
            let (mut sent, mut in_flight) = (0, 0);
            for step in steps {
                let outcome = match step {
                    Step::Send if hedges.next_deadline().is_some() => {
                        prop_assert_eq!(hedges.sent(now), sent);
                        sent += 1;
                        in_flight += 1;
                        Outcome::Pending
                    }
                    Step::Fail(code, ms) if in_flight > 0 => {
                        in_flight -= 1;
                        let code = Code::from_i32(code);
                        let pushback = ms.map_or(Pushback::Unsaid, |ms| Pushback::After(ms * MS));
                        hedges.failed(&failure(code, pushback), now)
                    }
                    Step::GiveUp if sent > 0 => hedges.give_up(),
                    _ => continue,
                };
                prop_assert!(sent <= max_attempts);
                if outcome == Outcome::Ended {
                    prop_assert_eq!(hedges.next_deadline(), None);
                    break;
                }
                prop_assert!(in_flight > 0 || hedges.next_deadline().is_some());
            }
        }
    }
}
