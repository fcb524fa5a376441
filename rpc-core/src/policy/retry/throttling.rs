//! The tokens of gRPC's retry throttling.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::config::RetryThrottling;

/// Tokens are counted in thousandths, as many decimal places as a ratio has.
const TOKEN: u32 = 1000;

/// What is left of a channel's tokens.
#[derive(Debug)]
pub struct Tokens {
    /// At most 1,000,000: a sum of two cannot overflow.
    left: AtomicU32,
    max: u32,
    /// What a success brings.
    gain: u32,
}

impl Tokens {
    /// All of them.
    #[must_use]
    pub fn new(rules: RetryThrottling) -> Self {
        let max = rules.max_tokens.min(1000) * TOKEN;
        // A float that is out of range becomes the nearest integer, and NaN becomes 0.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let gain = (rules.token_ratio * f64::from(TOKEN)) as u32;
        Self { left: AtomicU32::new(max), max, gain: gain.min(max) }
    }

    /// A call has succeeded.
    pub fn succeeded(&self) {
        let more = |left: u32| (left < self.max).then(|| (left + self.gain).min(self.max));
        let _ = self.left.fetch_update(Relaxed, Relaxed, more);
    }

    /// An attempt has failed, and that counts.
    pub fn failed(&self) {
        let less = |left: u32| (left > 0).then(|| left.saturating_sub(TOKEN));
        let _ = self.left.fetch_update(Relaxed, Relaxed, less);
    }

    /// Whether there may be repetitions.
    #[must_use]
    pub fn allow(&self) -> bool {
        self.left.load(Relaxed) > self.max / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_the_tokens_are_the_threshold() {
        let tokens = Tokens::new(RetryThrottling::new(4, 0.5));
        tokens.failed();
        assert!(tokens.allow());
        tokens.failed();
        assert!(!tokens.allow(), "two of four are no more than half");
        tokens.succeeded();
        assert!(tokens.allow());
    }

    #[test]
    fn decimal_places_beyond_the_third_are_cut_off() {
        let tokens = Tokens::new(RetryThrottling::new(2, 0.5466));
        assert_eq!(tokens.gain, 546);
    }

    proptest! {
        #[test]
        fn tokens_stay_between_none_and_all(
            max in 1..=1000u32,
            ratio in 0.001..1000.0f64,
            steps in prop::collection::vec(any::<bool>(), 0..3000),
        ) {
            let tokens = Tokens::new(RetryThrottling::new(max, ratio));
            let (mut left, top) = (f64::from(max), f64::from(max));
            let ratio = (ratio * 1000.0).floor() / 1000.0;
            for is_success in steps {
                if is_success { tokens.succeeded() } else { tokens.failed() }
                left = if is_success { (left + ratio).min(top) } else { (left - 1.0).max(0.0) };
                let real = f64::from(tokens.left.load(Relaxed)) / 1000.0;
                prop_assert!((real - left).abs() < 0.001 * 3000.0 * f64::EPSILON + 1e-6);
                if (left - top / 2.0).abs() > 1e-3 {
                    prop_assert_eq!(tokens.allow(), left > top / 2.0);
                }
            }
        }
    }
}
