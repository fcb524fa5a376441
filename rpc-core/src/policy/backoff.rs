//! The delays between attempts: they grow from one to the next up to a bound, and are spread at
//! random, so that many clients that failed together do not come back together.
//!
//! Pure: the seed of the randomness is an argument, and the clock is the caller's business. The
//! `breaker` of an upgraded path and the `reconnect` of a channel both take their delays from here.

use std::time::Duration;

use fastrand::Rng;

use crate::settings::{InvalidSetting, MAX_DELAY, ensure};

/// The reason for the shortest first delay.
pub(super) const A_PAUSE: &str = "attempts would follow one another without a pause";

/// The reason for the shortest time after which a connection counts as a success.
pub(super) const A_LIFE: &str = "a connection that ends at once would be replaced without a pause";

/// The range of the longest delay.
pub(super) const GROWING: &str = "from the initial delay to a day, since delays do not shrink";

/// Checks that the longest delay, which has this name, is not shorter than the first one.
///
/// # Errors
///
/// Returns an error if it is shorter.
pub(super) fn check_growing(
    name: &'static str,
    initial: Duration,
    max: Duration,
) -> Result<(), InvalidSetting> {
    ensure(initial <= max, name, max, GROWING)
}

/// The growth of delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    /// The first delay.
    pub initial: Duration,
    /// Delays grow up to this, at most a day.
    pub max: Duration,
    /// The factor from one delay to the next. Less than 1 counts as 1.
    pub multiplier: f64,
    /// Each delay is multiplied by a random factor between these two.
    pub spread: (f64, f64),
}

/// A sequence of delays without an end.
#[derive(Debug)]
pub struct Delays {
    curve: Curve,
    /// The next delay, before it is spread.
    next: Duration,
    random: Rng,
}

impl Delays {
    /// A sequence whose randomness is `seed`.
    #[must_use]
    pub fn new(curve: Curve, seed: u64) -> Self {
        let mut delays = Self { curve, next: Duration::ZERO, random: Rng::with_seed(seed) };
        delays.reset();
        delays
    }

    /// Begins anew with the first delay.
    pub fn reset(&mut self) {
        self.next = self.curve.initial.min(self.max());
    }

    /// The next delay.
    pub fn next_delay(&mut self) -> Duration {
        let (low, high) = self.curve.spread;
        let factor = low + (high - low) * self.random.f64();
        let delay = times(self.next, factor, MAX_DELAY);
        self.next = times(self.next, self.curve.multiplier.max(1.0), self.max());
        delay
    }

    fn max(&self) -> Duration {
        self.curve.max.min(MAX_DELAY)
    }
}

/// The product, at most `max`; a factor that means nothing gives `max`.
pub(super) fn times(delay: Duration, factor: f64, max: Duration) -> Duration {
    let product = Duration::try_from_secs_f64(delay.as_secs_f64() * factor);
    product.map_or(max, |product| product.min(max))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve() -> impl Strategy<Value = Curve> {
        let factor = prop_oneof![0.0..10.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)];
        let spread = (0.0..1.0f64, 1.0..3.0f64);
        (any::<Duration>(), any::<Duration>(), factor, spread).prop_map(
            |(initial, max, multiplier, spread)| Curve { initial, max, multiplier, spread },
        )
    }

    #[test]
    fn delays_grow_by_the_multiplier_up_to_the_longest() {
        let (initial, max) = (Duration::from_secs(1), Duration::from_secs(3));
        let curve = Curve { initial, max, multiplier: 1.6, spread: (1.0, 1.0) };
        let mut delays = Delays::new(curve, 7);
        let ms: Vec<_> = (0..5).map(|_| delays.next_delay().as_millis()).collect();
        assert_eq!(ms, [1000, 1600, 2560, 3000, 3000]);
        delays.reset();
        assert_eq!(delays.next_delay(), initial);
    }

    #[test]
    fn chance_has_all_of_the_spread() {
        let second = Duration::from_secs(1);
        let spread = (0.5, 3.0);
        let delays: Vec<_> = (0..200)
            .map(|seed| Curve { initial: second, max: second, multiplier: 1.0, spread }.at(seed))
            .collect();
        let (shortest, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!((0.5..0.7).contains(&shortest.as_secs_f64()), "{shortest:?}");
        assert!((2.8..=3.0).contains(&longest.as_secs_f64()), "{longest:?}");
    }

    impl Curve {
        /// The first delay that `seed` gives.
        fn at(self, seed: u64) -> Duration {
            Delays::new(self, seed).next_delay()
        }
    }

    proptest! {
        #[test]
        fn every_delay_is_within_its_spread(curve in curve(), seed: u64) {
            let mut delays = Delays::new(curve, seed);
            let mut unspread = Delays::new(Curve { spread: (1.0, 1.0), ..curve }, seed);
            let max = curve.max.min(MAX_DELAY);
            let slack = Duration::from_millis(1);
            for _ in 0..40 {
                let (delay, middle) = (delays.next_delay(), unspread.next_delay());
                let (low, high) = curve.spread;
                prop_assert!(middle <= max + slack);
                prop_assert!(delay + slack >= times(middle, low, MAX_DELAY));
                prop_assert!(delay <= times(middle, high, MAX_DELAY) + slack);
            }
        }

        #[test]
        fn a_seed_is_all_the_randomness(curve in curve(), seed: u64) {
            let run = || {
                let mut delays = Delays::new(curve, seed);
                (0..20).map(move |_| delays.next_delay()).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
        }
    }
}
