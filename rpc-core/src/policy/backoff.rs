//! Delays between attempts that fail, and the backoff of a channel that lost its connection or
//! could not make one.
//!
//! Pure: the seed of the randomness is an argument, and the clock is the caller's business. Delays
//! grow from one to the next up to a bound, and are spread at random, so that many clients that
//! failed together do not come back together. The `breaker` of an upgraded path takes its delays
//! from here, too.
//!
//! ```text
//!            attempt failed, or connection lost before it was useful
//!   Ready ────────────────────────────────────────────────────────────> BackingOff
//!     ^  │ the first loss since a useful connection: at once                │
//!     └──┘                                                                  │
//!     └──────────────────────── the delay is over ──────────────────────────┘
//! ```
//!
//! The delays are those of gRPC's connection backoff protocol, counted from the beginning of the
//! attempt as there. What resets them differs: gRPC takes the HTTP/2 settings for a success, so
//! that a server which accepts, says Hello and closes is asked again as fast as the network
//! allows. Here a connection has to be *useful*. It lasted for [`Backoff::healthy_after`],
//! or it lasted for [`Backoff::initial_delay`] and a call was answered over it. An answer
//! alone is not enough: a server that dies after each answer would be asked again without a pause.
//! The same rule stops loops of connections that are sent away (GOAWAY) at once. Servers that are
//! replaced one after the other do send their clients away so, and calls must not fail for it: ten
//! connections in a row that answered something are replaced at once.
//!
//! `breaker` decides which path a connection takes.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::Reason;
use crate::settings::{InvalidSetting, MAX_DELAY, MIN_TIMEOUT, Whole, define_settings, ensure};

/// The life of a connection that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifespan {
    /// Time at which the attempt began that made it.
    pub attempted_at: Instant,
    /// Time at which it was made.
    pub connected_at: Instant,
    /// The calls that were answered over it.
    pub answered_count: u64,
}

/// Maximum number of young connections in a row that are replaced at once, if each has answered
/// calls. A rolling restart of ten servers behind one address costs as many.
const ANSWERED_SPARED_MAX: u32 = 10;

/// The memory of one channel's attempts to connect.
#[derive(Debug)]
pub struct Reconnect {
    rules: Backoff,
    delays: Delays,
    state: State,
    /// Why the last attempt, or the last connection, failed.
    failure: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing has failed since a connection was useful.
    Sound,
    /// Number of connections in a row that were lost before they were useful. The last is replaced
    /// at once, because the next one may be useful.
    Spared { count: u32 },
    /// An attempt failed, or another connection was lost.
    BackingOff { reason: Reason, due: Instant },
}

impl Reconnect {
    /// A channel that has not connected yet. `seed` is the randomness of its delays.
    #[must_use]
    pub fn new(rules: Backoff, seed: u64) -> Self {
        let delays = rules.delays(seed);
        Self { rules, delays, state: State::Sound, failure: None }
    }

    /// Records an attempt that began at `attempted_at` and made no connection.
    pub fn handle_failed(&mut self, attempted_at: Instant, now: Instant, reason: Reason) {
        let due = (attempted_at + self.delays.next_delay()).max(now);
        self.failure = Some(reason.clone());
        self.state = State::BackingOff { reason, due };
    }

    /// Forgets the delays: the next attempt may be made at once, and what follows begins anew.
    pub fn reset(&mut self) {
        self.delays.reset();
        if let State::BackingOff { .. } = self.state {
            self.state = State::Sound;
        }
    }

    /// Records why the last connection failed; `None` for one that ended in order.
    pub fn handle_end(&mut self, failure: Option<Reason>) {
        self.failure = failure;
    }

    /// Why the last attempt, or the last connection, failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&Reason> {
        self.failure.as_ref()
    }

    /// Records the end of a connection.
    pub fn handle_lost(&mut self, lifespan: Lifespan, now: Instant, reason: Reason) {
        let age = now.saturating_duration_since(lifespan.connected_at);
        let is_useful = age >= self.rules.healthy_after
            || (lifespan.answered_count > 0 && age >= self.rules.initial_delay);
        if is_useful {
            self.delays.reset();
            self.state = State::Sound;
            return;
        }
        // A server that restarts just then must not cost the calls in flight a second.
        let spared_max = if lifespan.answered_count > 0 { ANSWERED_SPARED_MAX } else { 1 };
        match self.state {
            State::Sound => self.state = State::Spared { count: 1 },
            State::Spared { count } if count < spared_max => {
                self.state = State::Spared { count: count + 1 };
            }
            State::Spared { .. } | State::BackingOff { .. } => {
                self.handle_failed(lifespan.attempted_at, now, reason);
            }
        }
    }

    /// Why no attempt is made yet, and when the next one is due; `None` when one may be made.
    #[must_use]
    pub fn backing_off(&self, now: Instant) -> Option<(&Reason, Instant)> {
        match &self.state {
            State::BackingOff { reason, due } if *due > now => Some((reason, *due)),
            State::BackingOff { .. } | State::Sound | State::Spared { .. } => None,
        }
    }
}

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
#[path = "backoff_tests.rs"]
mod tests;
