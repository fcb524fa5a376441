//! A machine for each call that failed: whether it is made again, and when. It is gRPC's retry
//! design (A6), by its names.
//!
//! Pure: time and chance are arguments, and who makes the calls is `client::attempts`. A policy
//! says how many attempts there are and after which statuses. [`Retries`] makes them one after
//! another, [`Hedges`] side by side. [`Tokens`] stop both when too much fails.
//!
//! What differs from gRPC: its clients repeat whatever a policy names. Here a call is repeated only
//! if that can do no harm: its method is idempotent, or no handler has seen it.
//!
//! Calls without a policy have the [`RetryBudget`]: it bounds the idempotent calls that are made
//! once more after their connection ended. A call that kills the server, or a path that dies again
//! and again, must not be doubled without end. A bucket of tokens refills with time, so that a call
//! that succeeds has nothing to count. Finagle's `RetryBudget` is the model: a reserve that refills
//! by the second, and gRPC's A6 for the rule that replays stop before they become the load. Both
//! also pay in a share for every call; here the reserve alone is enough, because a call is replayed
//! at most once.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tonic::Code;

use super::retry_config::{Codes, HedgingPolicy, RetryPolicy, Throttling};
use crate::policy::backoff::{Curve, Delays};

/// The key of a status's metadata. Its value is how many milliseconds to wait, or a negative
/// number.
pub const PUSHBACK_KEY: &str = "grpc-retry-pushback-ms";

/// The key of a request's metadata that says how many attempts preceded it.
pub const ATTEMPTS_KEY: &str = "grpc-previous-rpc-attempts";

/// Delays are longer or shorter by up to a fifth, as in gRPC.
const JITTER: (f64, f64) = (0.8, 1.2);

/// The longest delay of a server: 2^31 ms, what its metadata can say. It keeps sums in range.
const LONGEST: Duration = Duration::from_millis(1 << 31);

/// Tokens are counted in thousandths, as many decimal places as a ratio has.
const TOKEN: u32 = 1000;

/// An attempt that ended with a status other than OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// The server's word on another attempt.
    pub pushback: Pushback,
    /// True if one more attempt can do no harm.
    pub is_repeatable: bool,
}

impl Failure {
    /// Returns true if a policy that names `codes` makes another attempt after it.
    fn may_be_repeated(&self, codes: Codes) -> bool {
        self.is_repeatable && codes.contains(self.code) && self.pushback != Pushback::Stop
    }

    /// Returns true if it counts against the server: its code is one of the policy's, or the server
    /// wants no more attempts. Others say nothing about the server, for example `INVALID_ARGUMENT`.
    #[must_use]
    pub fn counts(&self, codes: Codes) -> bool {
        codes.contains(self.code) || self.pushback == Pushback::Stop
    }
}

/// A server's word on another attempt at a call that it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushback {
    /// Nothing: the client's policy decides.
    Unsaid,
    /// To make it after exactly that long.
    After(Duration),
    /// To make none.
    Stop,
}

impl Pushback {
    /// Reads the value of the metadata, if there is one. One that is no number asks for no more
    /// attempts, as in gRPC: a server that says anything has trouble.
    #[must_use]
    pub fn read(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Unsaid };
        let ms = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
        match ms.and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) => Self::After(Duration::from_millis(ms)),
            None => Self::Stop,
        }
    }
}

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

    /// Returns the number of attempts before the present one.
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

/// The attempts at one call under a [`HedgingPolicy`].
#[derive(Debug)]
pub struct Hedges {
    policy: HedgingPolicy,
    sent: u32,
    in_flight: u32,
    next: Next,
}

/// The time of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Due(Instant),
    Done,
}

/// The consequence of a failure for the call.
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

    /// Returns the time of the next attempt. `None` if there is none to come.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.next {
            Next::Due(at) => Some(at),
            Next::Done => None,
        }
    }

    /// Returns true if the first attempt was sent.
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

/// A channel's remaining tokens.
#[derive(Debug)]
pub struct Tokens {
    /// At most 1,000,000: a sum of two cannot overflow.
    left: AtomicU32,
    max: u32,
    /// Tokens that a success brings.
    gain: u32,
}

impl Tokens {
    /// All of them.
    #[must_use]
    pub fn new(rules: Throttling) -> Self {
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

    /// Returns true if there may be repetitions.
    #[must_use]
    pub fn allow(&self) -> bool {
        self.left.load(Relaxed) > self.max / 2
    }
}

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
#[path = "retry_tests.rs"]
mod tests;
