//! Attempts one after another.

use std::time::Duration;

use super::Failure;
use super::config::RetryPolicy;
use super::pushback::Pushback;
use crate::policy::backoff::{Curve, Delays};

/// Delays are longer or shorter by up to a fifth, as in gRPC.
const JITTER: (f64, f64) = (0.8, 1.2);

/// The attempts at one call under a [`RetryPolicy`].
#[derive(Debug)]
pub struct Retries {
    policy: RetryPolicy,
    attempts: u32,
    delays: Delays,
}

impl Retries {
    /// A call whose first attempt is being made. `seed` is the randomness of its delays.
    #[must_use]
    pub fn new(policy: RetryPolicy, seed: u64) -> Self {
        let curve = Curve {
            initial: policy.initial_backoff,
            max: policy.max_backoff,
            multiplier: policy.backoff_multiplier,
            spread: JITTER,
        };
        Self { policy, attempts: 1, delays: Delays::new(curve, seed) }
    }

    /// How many attempts preceded the one that is being made.
    #[must_use]
    pub fn previous(&self) -> u32 {
        self.attempts - 1
    }

    /// The attempt has failed. After which delay there is another one, if there is.
    ///
    /// A delay that the server asks for is kept to exactly, and later ones begin anew with the
    /// first, as in gRPC.
    pub fn failed(&mut self, failure: &Failure) -> Option<Duration> {
        if self.attempts >= self.policy.max_attempts
            || !failure.may_be_repeated(self.policy.retryable_codes)
        {
            return None;
        }
        self.attempts += 1;
        match failure.pushback {
            Pushback::After(delay) => {
                self.delays.reset();
                Some(delay)
            }
            Pushback::Unsaid | Pushback::Stop => Some(self.delays.next_delay()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::super::codes::Codes;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn failure(code: Code) -> Failure {
        Failure { code, pushback: Pushback::Unsaid, is_repeatable: true }
    }

    fn is_about(delay: Option<Duration>, ms: f64) -> bool {
        let delay = delay.expect("there is another attempt").as_secs_f64() * 1000.0;
        (ms * 0.799..=ms * 1.201).contains(&delay)
    }

    #[test]
    fn delays_grow_up_to_the_longest_and_attempts_end() {
        let policy = RetryPolicy::new().with_max_attempts(5).with_max_backoff(300 * MS);
        let mut retries = Retries::new(policy, 7);
        for (previous, ms) in [(1, 100.0), (2, 200.0), (3, 300.0), (4, 300.0)] {
            assert!(is_about(retries.failed(&failure(Code::Unavailable)), ms));
            assert_eq!(retries.previous(), previous);
        }
        assert_eq!(retries.failed(&failure(Code::Unavailable)), None);
    }

    #[test]
    fn a_pushback_is_kept_to_and_the_next_delay_is_the_first() {
        let policy = RetryPolicy::new().with_max_attempts(5);
        let mut retries = Retries::new(policy, 7);
        assert!(is_about(retries.failed(&failure(Code::Unavailable)), 100.0));
        let pushed = Failure { pushback: Pushback::After(7 * MS), ..failure(Code::Unavailable) };
        assert_eq!(retries.failed(&pushed), Some(7 * MS));
        assert!(is_about(retries.failed(&failure(Code::Unavailable)), 100.0));
        let stop = Failure { pushback: Pushback::Stop, ..failure(Code::Unavailable) };
        assert_eq!(retries.failed(&stop), None);
    }

    fn any_failure() -> impl Strategy<Value = Failure> {
        let pushback = prop_oneof![
            3 => Just(Pushback::Unsaid),
            1 => (0..10_000u32).prop_map(|ms| Pushback::After(ms * MS)),
            1 => Just(Pushback::Stop),
        ];
        (1..17, pushback, any::<bool>()).prop_map(|(code, pushback, is_repeatable)| Failure {
            code: Code::from_i32(code),
            pushback,
            is_repeatable,
        })
    }

    proptest! {
        #[test]
        fn only_what_may_be_repeated_is_and_no_more_often_than_the_policy_says(
            failures in prop::collection::vec(any_failure(), 0..20),
            max_attempts in 2..=5u32,
            codes in prop::collection::vec(1..17, 1..17),
            seed: u64,
        ) {
            let codes: Codes = codes.into_iter().map(Code::from_i32).collect();
            let policy = RetryPolicy::new().with_max_attempts(max_attempts);
            let mut retries = Retries::new(RetryPolicy { retryable_codes: codes, ..policy }, seed);
            let mut made = 1;
            for failure in failures {
                match retries.failed(&failure) {
                    Some(delay) => {
                        made += 1;
                        prop_assert!(failure.is_repeatable && codes.contains(failure.code));
                        match failure.pushback {
                            Pushback::After(exactly) => prop_assert_eq!(delay, exactly),
                            Pushback::Unsaid => prop_assert!(delay <= policy.max_backoff * 13 / 10),
                            Pushback::Stop => prop_assert!(false),
                        }
                    }
                    None => {
                        let is_final = made == max_attempts
                            || !failure.is_repeatable
                            || !codes.contains(failure.code)
                            || failure.pushback == Pushback::Stop;
                        prop_assert!(is_final);
                    }
                }
                prop_assert!(made <= max_attempts);
                prop_assert_eq!(retries.previous(), made - 1);
            }
        }
    }
}
