//! A circuit breaker for a channel's upgraded path: when it is retried after a failure.
//!
//! ```text
//!   Untried ──upgraded──> Closed ──failed, or an attempt failed──> Open ──upgraded──> Closed
//!      │                                                           │  ^
//!      └──────────────declined, for a reason that can pass──────>  └──┘ an attempt failed
//! ```
//!
//! A path that is declined for a reason that cannot pass is `Refused`, and not tried again before
//! the next connection.
//!
//! Delays double from one failure to the next. A path that fails soon after failback counts as one
//! more failure; the delays start over once the breaker was closed for a while. What counts as an
//! attempt is up to the caller.
//!
//! [`Path`] says which path the calls of a channel take, and why it is not the upgraded one.

use std::fmt;
use std::time::{Duration, Instant};

use super::backoff::{Backoff, Delays};
use crate::Reason;

/// The path of a channel's calls at this moment, returned by `Channel::path`.
///
/// ```text
///                    connected                 the upgraded path failed
///  Disconnected ────────────────> Upgraded ─────────────────────────────> Broken
///       ^  │                          ^  ^                                   │
///       │  ├──> Fallback ── retried ──┘  └───────────────────────────────────┘
///       │  └──> Direct                               failback
///       └──────── closed
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// There is no connection. The channel connects at its next call.
    Disconnected {
        /// Why the last attempt to connect, or the last connection, failed; `None` before the first
        /// attempt and after a connection that ended in order.
        reason: Option<String>,
        /// Time until the next attempt. `None` if the next call makes one at once.
        retry_in: Option<Duration>,
    },
    /// Calls take the only path that the address names.
    Direct {
        /// The transport, for example `tcp` or `inproc`.
        transport: &'static str,
    },
    /// Calls take the upgraded path.
    Upgraded {
        /// The transport, for example `rdma`.
        transport: &'static str,
    },
    /// The upgraded path could not be had for this connection. If the reason can pass, the channel
    /// tries again in the background; otherwise when it connects again.
    Fallback {
        /// The transport in use, for example `tcp`.
        transport: &'static str,
        /// Why the upgraded path could not be had, by the last attempt.
        reason: String,
        /// Time until the next attempt over the path. `None` if the reason cannot pass.
        retry_in: Option<Duration>,
    },
    /// The upgraded path was in use, and failed.
    Broken {
        /// The transport in use meanwhile; `None` where there is no connection, as under `rdma://`.
        transport: Option<&'static str>,
        /// Why the path failed, or the last attempt to have it back.
        reason: String,
        /// Time until the next attempt over the path. Under `auto://` the channel tries in the
        /// background, as long as it has a connection. Under `rdma://` the next call from then on
        /// tries.
        retry_in: Duration,
    },
}

impl Path {
    /// The transport in use, for example `tcp` or `rdma`; `None` where there is no connection.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        match self {
            Self::Disconnected { .. } => None,
            Self::Broken { transport, .. } => *transport,
            Self::Direct { transport }
            | Self::Upgraded { transport }
            | Self::Fallback { transport, .. } => Some(transport),
        }
    }

    /// Why calls do not take the upgraded path, or why there is no connection.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Disconnected { reason, .. } => reason.as_deref(),
            Self::Direct { .. } | Self::Upgraded { .. } => None,
            Self::Fallback { reason, .. } | Self::Broken { reason, .. } => Some(reason),
        }
    }

    /// Returns the time until the channel tries again, if it has to wait.
    #[must_use]
    pub fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Disconnected { retry_in, .. } | Self::Fallback { retry_in, .. } => *retry_in,
            Self::Broken { retry_in, .. } => Some(*retry_in),
            Self::Direct { .. } | Self::Upgraded { .. } => None,
        }
    }

    /// Returns true if calls take the upgraded path.
    #[must_use]
    pub fn is_upgraded(&self) -> bool {
        matches!(self, Self::Upgraded { .. })
    }
}

/// One line for a log: the transport, and the reason where there is one.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport().unwrap_or("not connected"))?;
        let Some(reason) = self.reason() else { return Ok(()) };
        match self.retry_in() {
            Some(wait) => write!(f, " ({reason}; next attempt in {} ms)", wait.as_millis()),
            None => write!(f, " ({reason})"),
        }
    }
}

/// The number of failures and returns of a channel's upgraded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathCounts {
    /// Number of failures while it was in use.
    pub failovers: u64,
    /// Number of times that calls returned to it.
    pub failbacks: u64,
}

/// The first retry of a path that has worked for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAttempt {
    /// At once: calls have no other path.
    AtOnce,
    /// After a delay: calls go on elsewhere meanwhile.
    Delayed,
}

/// The change that a connection over the path means to its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathGain {
    /// The path could be had all along.
    None,
    /// The channel has the path for the first time, after it could not be had.
    First,
    /// The path was in use, and is again.
    Back,
}

/// The circuit breaker of one channel's upgraded path.
#[derive(Debug)]
pub struct Breaker {
    rules: Backoff,
    first: FirstAttempt,
    delays: Delays,
    /// True if nothing has failed since the path has worked for a while.
    is_fresh: bool,
    /// True if a connection has used the path.
    was_used: bool,
    state: State,
    failovers: u64,
    failbacks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Untried,
    Closed {
        since: Instant,
    },
    Open {
        reason: Reason,
        due: Instant,
    },
    /// It cannot be had, and is not tried in the background.
    Refused {
        reason: Reason,
    },
}

/// Why a path is not had beside the one in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The reason, for people.
    pub reason: Reason,
    /// True if it can pass while both processes run.
    pub can_pass: bool,
}

impl Breaker {
    /// A breaker of a path that was never tried. `seed` is the randomness of its delays.
    #[must_use]
    pub fn new(rules: Backoff, first: FirstAttempt, seed: u64) -> Self {
        let delays = rules.delays(seed);
        let state = State::Untried;
        Self {
            rules,
            first,
            delays,
            is_fresh: true,
            was_used: false,
            state,
            failovers: 0,
            failbacks: 0,
        }
    }

    /// Records that a connection uses the path.
    pub fn handle_upgraded(&mut self, now: Instant) -> PathGain {
        let could_not_be_had = matches!(self.state, State::Open { .. } | State::Refused { .. });
        let gain = match (could_not_be_had, self.was_used) {
            (false, _) => PathGain::None,
            (true, false) => PathGain::First,
            (true, true) => PathGain::Back,
        };
        self.failbacks += u64::from(gain == PathGain::Back);
        self.was_used = true;
        self.state = State::Closed { since: now };
        gain
    }

    /// Records that an attempt at the path was declined while another path carries the calls. It is
    /// tried again if the reason can pass, also if it was never in use.
    pub fn handle_declined(&mut self, now: Instant, denial: Denial) {
        let Denial { reason, can_pass } = denial;
        match can_pass {
            true => self.open(now, reason),
            false => self.state = State::Refused { reason },
        }
    }

    /// Records that the path failed under a connection.
    pub fn handle_failure(&mut self, now: Instant, reason: Reason) {
        self.failovers += 1;
        self.open(now, reason);
    }

    /// Records that an attempt at the path failed. A path that was never in use is left alone.
    pub fn handle_attempt_failed(&mut self, now: Instant, reason: Reason) {
        if self.state != State::Untried {
            self.open(now, reason);
        }
    }

    /// Why the breaker is open, and when the path is retried; `None` while it is closed.
    #[must_use]
    pub fn broken(&self) -> Option<(&Reason, Instant)> {
        match &self.state {
            State::Open { reason, due } => Some((reason, *due)),
            State::Untried | State::Closed { .. } | State::Refused { .. } => None,
        }
    }

    /// Why the path could not be had the last time it was tried.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        match &self.state {
            State::Open { reason, .. } | State::Refused { reason } => Some(reason),
            State::Untried | State::Closed { .. } => None,
        }
    }

    /// Returns true if a connection has used the path.
    #[must_use]
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Returns the number of times that the path has failed while in use.
    #[must_use]
    pub fn failovers(&self) -> u64 {
        self.failovers
    }

    /// Returns the number of times that it has returned after it was in use.
    #[must_use]
    pub fn failbacks(&self) -> u64 {
        self.failbacks
    }

    fn open(&mut self, now: Instant, reason: Reason) {
        if let State::Closed { since } = self.state
            && now.saturating_duration_since(since) >= self.rules.healthy_after
        {
            self.delays.reset();
            self.is_fresh = true;
        }
        let is_at_once = self.is_fresh && self.first == FirstAttempt::AtOnce;
        self.is_fresh = false;
        let delay = match is_at_once {
            true => Duration::ZERO,
            false => self.delays.next_delay(),
        };
        self.state = State::Open { reason, due: now + delay };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Delays from 100 to 200 ms, which double up to 1,600 to 3,200 ms.
    const RULES: Backoff = Backoff::PATH
        .with_initial_delay(Duration::from_millis(150))
        .with_max_delay(Duration::from_millis(3200))
        .with_healthy_after(Duration::from_secs(10));

    #[test]
    fn a_path_is_one_line_in_a_log() {
        let reason = "no route".to_owned();
        for (path, line) in [
            (Path::Upgraded { transport: "rdma" }, "rdma"),
            (Path::Direct { transport: "tcp" }, "tcp"),
            (
                Path::Fallback { transport: "tcp", reason: reason.clone(), retry_in: None },
                "tcp (no route)",
            ),
            (
                Path::Broken {
                    transport: None,
                    reason: reason.clone(),
                    retry_in: Duration::from_millis(5),
                },
                "not connected (no route; next attempt in 5 ms)",
            ),
            (Path::Disconnected { reason: None, retry_in: None }, "not connected"),
        ] {
            assert_eq!(path.to_string(), line);
        }
    }

    fn delay(breaker: &Breaker, now: Instant) -> Duration {
        let (_, due) = breaker.broken().expect("it is broken");
        due - now
    }

    fn is_about(delay: Duration, ms: u64) -> bool {
        (Duration::from_millis(ms)..=Duration::from_millis(2 * ms)).contains(&delay)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let now = Instant::now();
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        breaker.handle_upgraded(now);
        breaker.handle_failure(now, "cut".into());
        assert!(is_about(delay(&breaker, now), 100));
        for ms in [200, 400, 800, 1600, 1600] {
            breaker.handle_attempt_failed(now, "still cut".into());
            assert!(is_about(delay(&breaker, now), ms), "{breaker:?}");
        }
        assert_eq!(breaker.broken().map(|(reason, _)| &**reason), Some("still cut"));
    }

    #[test]
    fn a_path_that_dies_soon_after_its_return_waits_longer() {
        let now = Instant::now();
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        breaker.handle_upgraded(now);
        breaker.handle_failure(now, "cut".into());
        assert_eq!(breaker.handle_upgraded(now), PathGain::Back);
        breaker.handle_failure(now + Duration::from_secs(9), "cut again".into());
        assert!(is_about(delay(&breaker, now + Duration::from_secs(9)), 200));
        assert_eq!((breaker.failovers(), breaker.failbacks()), (2, 1));
    }

    #[test]
    fn a_healthy_period_begins_anew() {
        let now = Instant::now();
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        breaker.handle_upgraded(now);
        breaker.handle_failure(now, "cut".into());
        breaker.handle_attempt_failed(now, "cut".into());
        breaker.handle_upgraded(now);
        let later = now + RULES.healthy_after;
        breaker.handle_failure(later, "cut".into());
        assert!(is_about(delay(&breaker, later), 100));
    }

    #[test]
    fn without_another_path_the_first_attempt_is_at_once() {
        let now = Instant::now();
        let mut breaker = Breaker::new(RULES, FirstAttempt::AtOnce, 1);
        breaker.handle_upgraded(now);
        breaker.handle_failure(now, "cut".into());
        assert_eq!(delay(&breaker, now), Duration::ZERO);
        breaker.handle_attempt_failed(now, "cut".into());
        assert!(is_about(delay(&breaker, now), 100));
    }

    #[test]
    fn a_path_that_never_was_is_not_missed() {
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        breaker.handle_attempt_failed(Instant::now(), "no device".into());
        assert_eq!(breaker.broken(), None);
        assert_eq!(breaker.handle_upgraded(Instant::now()), PathGain::None);
    }

    #[test]
    fn a_declined_path_is_tried_again_if_the_reason_can_pass() {
        let now = Instant::now();
        let denial = |can_pass| Denial { reason: "port down".into(), can_pass };
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        for ms in [100, 200, 400] {
            breaker.handle_declined(now, denial(true));
            assert!(is_about(delay(&breaker, now), ms), "{breaker:?}");
        }
        assert!(!breaker.was_used());
        assert_eq!(breaker.handle_upgraded(now), PathGain::First);
        assert!(breaker.was_used());
        assert_eq!((breaker.failovers(), breaker.failbacks()), (0, 0), "it never failed in use");
        breaker.handle_declined(now, denial(false));
        assert_eq!((breaker.broken(), breaker.reason()), (None, Some(&"port down".into())));
        assert_eq!(breaker.handle_upgraded(now), PathGain::Back, "the next connection has it");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Upgraded,
        Failure,
        Failed,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![Just(Step::Upgraded), Just(Step::Failure), Just(Step::Failed)]
    }

    #[test]
    fn every_failure_and_every_return_is_counted() {
        let now = Instant::now();
        let mut breaker = Breaker::new(RULES, FirstAttempt::Delayed, 1);
        assert_eq!(breaker.handle_upgraded(now), PathGain::None);
        for count in 1..=3 {
            breaker.handle_failure(now, "cut".into());
            breaker.handle_attempt_failed(now, "still cut".into());
            assert_eq!((breaker.failovers(), breaker.failbacks()), (count, count - 1));
            assert_eq!(breaker.handle_upgraded(now), PathGain::Back);
            assert_eq!(breaker.handle_upgraded(now), PathGain::None, "it was back");
            assert_eq!((breaker.failovers(), breaker.failbacks()), (count, count));
        }
    }

    proptest! {
        #[test]
        fn every_delay_is_within_its_bounds(
            steps in prop::collection::vec((step(), 0..20u64), 0..64),
            (min, max) in (any::<Duration>(), any::<Duration>()),
        ) {
            let rules = Backoff { initial_delay: min, max_delay: max, ..RULES };
            let mut breaker = Breaker::new(rules, FirstAttempt::Delayed, 1);
            let mut now = Instant::now();
            let mut upgrades = 0;
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                match step {
                    Step::Upgraded => {
                        upgrades += 1;
                        breaker.handle_upgraded(now);
                        prop_assert_eq!(breaker.broken(), None);
                    }
                    Step::Failure => breaker.handle_failure(now, "".into()),
                    Step::Failed => breaker.handle_attempt_failed(now, "".into()),
                }
                let day = Duration::from_secs(24 * 60 * 60);
                if let (Step::Failure, Some((_, due))) = (&step, breaker.broken()) {
                    let slack = Duration::from_micros(1);
                    prop_assert!(due - now + slack >= min.min(max / 2).min(day / 2) / 2);
                    prop_assert!(due - now <= max.min(day) + slack);
                }
            }
            prop_assert!(breaker.failbacks() <= upgrades);
        }
    }
}
