//! A server's rules for the end of a connection: it is idle, old, or the server shuts down.
//!
//! ```text
//!            idle, old, or told to              drain time over
//!   (open) ───────────────────────> (retiring) ─────────────────> over
//! ```
//! A retiring connection starts no more calls and ends with its last one. Time is an argument.

use std::time::{Duration, Instant};

/// The rules of a connection's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LifetimeRules {
    /// After how long without a call it retires.
    pub idle_timeout: Option<Duration>,
    /// After how long it retires in any case.
    pub age_max: Option<Duration>,
    /// Time for which calls in flight may then go on.
    pub age_grace: Option<Duration>,
}

/// Time for a client without calls to leave after it has been sent away. A request that it had sent
/// before it learned of that arrives within a round trip; 5 s are many of those.
pub const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest of any of them: a year keeps every sum of instants in range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The calls of a connection, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// Calls started so far.
    pub started: u64,
    /// Calls in flight.
    pub in_flight: usize,
}

/// Why a connection retires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retiring {
    /// It had no calls.
    Idle,
    /// It is old.
    Age,
    /// The server shuts down.
    Shutdown,
}

impl Retiring {
    /// The setting that says how long calls in flight may then go on.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::Idle => "server.idle_timeout",
            Self::Age => "server.max_connection_age_grace",
            Self::Shutdown => "server.drain_timeout",
        }
    }
}

/// The step that a check of a connection asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stage {
    /// Nothing.
    Stay,
    /// To start no more calls.
    Retire(Retiring),
    /// To end the calls in flight.
    Over,
}

/// The life of one connection.
#[derive(Debug)]
pub struct Lifetime {
    rules: LifetimeRules,
    old_at: Option<Instant>,
    /// Time of the next check for idleness, and the number of calls started by the last check.
    idle_at: Option<Instant>,
    started: u64,
    over_at: Option<Instant>,
    is_retiring: bool,
}

impl Lifetime {
    /// A connection that begins now. `jitter`, from 0 to 1, moves its age by up to a tenth each
    /// way, so that connections that began together do not end together.
    #[must_use]
    pub fn new(rules: LifetimeRules, now: Instant, jitter: f64) -> Self {
        let factor = 0.9 + 0.2 * jitter.clamp(0.0, 1.0);
        let old_at = rules.age_max.map(|age| now + age.min(LONGEST).mul_f64(factor));
        let idle_at = rules.idle_timeout.map(|timeout| now + timeout.min(LONGEST));
        Self { rules, old_at, idle_at, started: 0, over_at: None, is_retiring: false }
    }

    /// Returns the time of the next check. `None` if nothing can become due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if self.is_retiring {
            return self.over_at;
        }
        self.old_at.into_iter().chain(self.idle_at).min()
    }

    /// Looks, if it is time to.
    pub fn handle_tick(&mut self, now: Instant, calls: CallCounts) -> Stage {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.is_retiring {
            return if is_due(self.over_at) { Stage::Over } else { Stage::Stay };
        }
        if is_due(self.old_at) {
            self.retire(now, self.rules.age_grace);
            return Stage::Retire(Retiring::Age);
        }
        if !is_due(self.idle_at) {
            return Stage::Stay;
        }
        let was_idle = calls.in_flight == 0 && calls.started == self.started;
        if was_idle {
            // There are no calls that would need time; one that is on its way is refused.
            self.retire(now, Some(GOODBYE_TIMEOUT));
            return Stage::Retire(Retiring::Idle);
        }
        self.started = calls.started;
        self.idle_at = self.rules.idle_timeout.map(|timeout| now + timeout.min(LONGEST));
        Stage::Stay
    }

    /// Retires the connection; calls in flight may go on for `drain_timeout`, and no longer than
    /// they might if it was retired before.
    pub fn retire(&mut self, now: Instant, drain_timeout: Option<Duration>) {
        self.is_retiring = true;
        let over_at = drain_timeout.map(|timeout| now + timeout.min(LONGEST));
        self.over_at = self.over_at.into_iter().chain(over_at).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RULES: LifetimeRules = LifetimeRules {
        idle_timeout: Some(SECOND),
        age_max: Some(Duration::from_secs(100)),
        age_grace: Some(Duration::from_secs(5)),
    };

    fn counts(started: u64, in_flight: usize) -> CallCounts {
        CallCounts { started, in_flight }
    }

    #[test]
    fn a_connection_without_calls_is_idle_after_the_timeout() {
        let start = Instant::now();
        let mut life = Lifetime::new(RULES, start, 0.5);
        assert_eq!(life.due(), Some(start + SECOND));
        assert_eq!(life.handle_tick(start + SECOND, counts(1, 0)), Stage::Stay);
        assert_eq!(life.handle_tick(start + 2 * SECOND, counts(1, 1)), Stage::Stay);
        let idle = life.handle_tick(start + 3 * SECOND, counts(1, 0));
        assert_eq!(idle, Stage::Retire(Retiring::Idle));
    }

    #[test]
    fn an_old_connection_retires_with_its_grace() {
        let start = Instant::now();
        let rules = LifetimeRules { idle_timeout: None, ..RULES };
        let mut life = Lifetime::new(rules, start, 0.5);
        let old = start + 100 * SECOND;
        assert_eq!(life.handle_tick(old - SECOND, counts(9, 9)), Stage::Stay);
        assert_eq!(life.handle_tick(old, counts(9, 9)), Stage::Retire(Retiring::Age));
        assert_eq!(life.due(), Some(old + 5 * SECOND));
        assert_eq!(life.handle_tick(old + 5 * SECOND, counts(9, 9)), Stage::Over);
    }

    #[test]
    fn ages_differ_by_a_tenth_each_way() {
        let start = Instant::now();
        let rules = LifetimeRules { idle_timeout: None, ..RULES };
        let old_at = |jitter| Lifetime::new(rules, start, jitter).due().unwrap() - start;
        assert_eq!((old_at(0.0).as_secs(), old_at(1.0).as_secs()), (90, 110));
        assert_eq!(old_at(f64::INFINITY).as_secs(), 110);
    }

    #[test]
    fn a_shutdown_ends_only_overdue_calls() {
        let start = Instant::now();
        let mut life = Lifetime::new(RULES, start, 0.5);
        life.retire(start, Some(7 * SECOND));
        assert_eq!(life.handle_tick(start + 2 * SECOND, counts(0, 1)), Stage::Stay);
        assert_eq!(life.handle_tick(start + 7 * SECOND, counts(0, 1)), Stage::Over);
    }

    #[test]
    fn a_connection_without_rules_lives_for_ever() {
        let mut life = Lifetime::new(LifetimeRules::default(), Instant::now(), 0.5);
        assert_eq!(life.due(), None);
        life.retire(Instant::now(), None);
        assert_eq!(life.due(), None);
        let absurd = LifetimeRules {
            idle_timeout: Some(Duration::MAX),
            age_max: Some(Duration::MAX),
            age_grace: Some(Duration::MAX),
        };
        assert!(Lifetime::new(absurd, Instant::now(), 1.0).due().is_some());
    }

    #[test]
    fn idleness_is_looked_at_once_a_timeout() {
        let start = Instant::now();
        let mut life = Lifetime::new(RULES, start, 0.5);
        assert_eq!(life.handle_tick(start + SECOND, counts(1, 1)), Stage::Stay);
        assert_eq!(life.due(), Some(start + 2 * SECOND));
        assert_eq!(life.handle_tick(start + SECOND * 3 / 2, counts(1, 0)), Stage::Stay);
        // A call that went on all the time, and one that began and ended meanwhile.
        assert_eq!(life.handle_tick(start + 2 * SECOND, counts(1, 1)), Stage::Stay);
        assert_eq!(life.handle_tick(start + 3 * SECOND, counts(2, 0)), Stage::Stay);
        let idle = life.handle_tick(start + 4 * SECOND, counts(2, 0));
        assert_eq!(idle, Stage::Retire(Retiring::Idle));
        assert_eq!(life.due(), Some(start + 4 * SECOND + GOODBYE_TIMEOUT));
    }

    #[test]
    fn earlier_of_two_reasons_to_end_counts() {
        let start = Instant::now();
        let mut life = Lifetime::new(RULES, start, 0.5);
        life.retire(start, Some(7 * SECOND));
        life.retire(start + SECOND, Some(3 * SECOND));
        assert_eq!(life.due(), Some(start + 4 * SECOND));
        life.retire(start + SECOND, Some(9 * SECOND));
        assert_eq!(life.due(), Some(start + 4 * SECOND));
    }

    #[test]
    fn no_time_is_longer_than_a_year() {
        let (start, year) = (Instant::now(), Duration::from_secs(31_536_000));
        let idle = LifetimeRules { idle_timeout: Some(Duration::MAX), ..Default::default() };
        assert_eq!(Lifetime::new(idle, start, 0.5).due(), Some(start + year));
    }

    #[test]
    fn each_reason_names_the_setting_of_its_grace() {
        let settings = [Retiring::Idle, Retiring::Age, Retiring::Shutdown].map(Retiring::setting);
        let expected =
            ["server.idle_timeout", "server.max_connection_age_grace", "server.drain_timeout"];
        assert_eq!(settings, expected);
    }
}
