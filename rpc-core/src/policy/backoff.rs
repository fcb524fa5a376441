//! The delays between attempts: they grow from one to the next up to a bound, and are spread at
//! random, so that many clients that failed together do not come back together.
//!
//! Pure: the seed of the randomness is an argument, and the clock is the caller's business. The
//! `breaker` of an upgraded path and the `reconnect` of a channel both take their delays from here.

use std::time::Duration;

use fastrand::Rng;

use crate::settings::{InvalidSetting, MAX_DELAY, MIN_TIMEOUT, Whole, define_settings, ensure};

/// The reason for the shortest first delay.
const A_PAUSE: &str = "attempts would follow each other without a pause";

/// The reason for the shortest time after which a connection counts as a success.
const A_LIFE: &str = "a connection that ends at once would be replaced without a pause";

/// The range of the longest delay.
const GROWING: &str = "from the initial delay to a day, since delays do not shrink";

define_settings! {
    /// Delays between attempts that fail in a row.
    ///
    /// `connect_backoff` has them for connections to a server that cannot be reached, or that are
    /// of no use. The defaults are those of gRPC's connection backoff protocol
    /// (<https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md>), but for the longest
    /// delay: a channel is back within 10 s of its server, and not within 2 minutes.
    /// `path_backoff` has them for an RDMA path that has failed, and defaults of its own:
    /// [`Backoff::PATH`].
    ///
    /// [`check`](Self::check) says whether the values are in range. The setters that take a
    /// `Backoff` check it, and panic.
    Backoff, BackoffOverlay, "backoff", [const], derive(Copy, PartialEq) {
        /// Delay after the first failure, counted from the beginning of the attempt.
        ///
        /// 1 s by default; from 1 ms to a day. A connection that ends sooner counts as a failed
        /// attempt. The first in a row is replaced at once, and so are the first ten if calls were
        /// answered over each.
        initial_delay, with_initial_delay: Duration as Plain = Duration::from_secs(1), Start,
            MIN_TIMEOUT..=MAX_DELAY, A_PAUSE;
        /// Maximum delay, chance included.
        ///
        /// 10 s by default; from the initial delay to a day. News from the resolver resets the
        /// delays of connections.
        max_delay, with_max_delay: Duration as Plain = Duration::from_secs(10), Start,
            MIN_TIMEOUT..=MAX_DELAY, Whole(GROWING);
        /// Factor from one delay to the next.
        ///
        /// 1.6 by default; a finite number, at least 1.
        multiplier, with_multiplier: f64 as Plain = 1.6, CodeOnly,
            1.0.., "delays do not shrink";
        /// Part of each delay by which chance makes it longer or shorter, at most.
        ///
        /// From 0 to 1; 0.2 by default.
        jitter, with_jitter: f64 as Plain = 0.2, CodeOnly,
            0.0..=1.0, "it is the random part of a delay";
        /// Time after which a connection counts as a success, so that the next failure is a first
        /// one. A connection over which a call was answered may also end after `initial_delay`.
        ///
        /// 30 s by default: what the default keepalive takes to find out that a connection carries
        /// nothing, its interval and its timeout. At least 1 ms.
        healthy_after, with_healthy_after: Duration as Plain = Duration::from_secs(30), CodeOnly,
            MIN_TIMEOUT.., A_LIFE;
    }
}

impl Backoff {
    /// The defaults for an RDMA path: from 200 to 400 ms after the first failure, twice as long
    /// after each further one, and up to 2 minutes.
    ///
    /// A link that flaps is back by then, and an attempt that fails costs the server a queue pair
    /// for half a second. Clients do not come back together.
    pub const PATH: Self = Self::DEFAULTS
        .with_initial_delay(Duration::from_millis(300))
        .with_max_delay(Duration::from_secs(120))
        .with_multiplier(2.0)
        .with_jitter(1.0 / 3.0);

    /// The default delays of connections.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULTS
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()?;
        let is_growing = self.initial_delay <= self.max_delay;
        ensure(is_growing, "backoff.max_delay", self.max_delay, GROWING)
    }

    /// Delays by these rules. `seed` is their randomness.
    pub(crate) fn delays(&self, seed: u64) -> Delays {
        let jitter = self.jitter.clamp(0.0, 1.0);
        let curve = Curve {
            initial: self.initial_delay,
            // Chance makes no delay longer than the longest.
            max: times(self.max_delay, 1.0 / (1.0 + jitter), self.max_delay),
            multiplier: self.multiplier,
            spread: (1.0 - jitter, 1.0 + jitter),
        };
        Delays::new(curve, seed)
    }
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
fn times(delay: Duration, factor: f64, max: Duration) -> Duration {
    let product = Duration::try_from_secs_f64(delay.as_secs_f64() * factor);
    product.map_or(max, |product| product.min(max))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        let (new, zero) = (Backoff::new, Duration::ZERO);
        let multiplier = "a finite number, at least 1, since delays do not shrink";
        let jitter = "from 0 to 1, since it is the random part";
        let table = [
            (new().with_initial_delay(zero), "initial_delay is 0ns: from 1 ms to a day".into()),
            (new().with_max_delay(SECOND / 2), "max_delay is 500ms: from the initial".into()),
            (new().with_healthy_after(zero), "healthy_after is 0ns: at least 1 ms".into()),
            (new().with_multiplier(0.5), format!("multiplier is 0.5: {multiplier}")),
            (new().with_multiplier(f64::NAN), format!("multiplier is NaN: {multiplier}")),
            (new().with_multiplier(f64::INFINITY), format!("multiplier is inf: {multiplier}")),
            (new().with_jitter(-0.1), format!("jitter is -0.1: {jitter}")),
            (new().with_jitter(1.5), format!("jitter is 1.5: {jitter}")),
            (new().with_jitter(f64::NAN), format!("jitter is NaN: {jitter}")),
        ];
        for (rules, message) in table {
            let error = rules.check().expect_err("a value is out of range").to_string();
            assert!(error.starts_with(&format!("backoff.{message}")), "{error}");
        }
        let ends = [new().with_multiplier(1.0).with_jitter(0.0), new().with_jitter(1.0)];
        for rules in ends.into_iter().chain([new()]) {
            assert_eq!(rules.check(), Ok(()));
        }
    }

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
