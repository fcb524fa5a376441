//! Backoff of a channel that lost its connection, or could not make one.
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
//! Which path a connection takes is `breaker`'s business.

use std::time::Instant;

use super::backoff::{Backoff, Delays};
use crate::Reason;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lifespan(attempted_at: Instant, answered_count: u64) -> Lifespan {
        Lifespan { attempted_at, connected_at: attempted_at, answered_count }
    }

    fn wait(reconnect: &Reconnect, now: Instant) -> Duration {
        reconnect.backing_off(now).map_or(Duration::ZERO, |(_, due)| due - now)
    }

    #[test]
    fn delays_count_from_the_beginning_of_an_attempt() {
        let (start, rules) = (Instant::now(), Backoff::default());
        let mut reconnect = Reconnect::new(rules, 1);
        assert_eq!(reconnect.backing_off(start), None);
        reconnect.handle_failed(start, start + SECOND / 2, "no route".into());
        let (reason, due) = reconnect.backing_off(start + SECOND / 2).unwrap();
        assert_eq!(&**reason, "no route");
        assert!((SECOND * 8 / 10..=SECOND * 12 / 10).contains(&(due - start)));
        assert_eq!(reconnect.backing_off(due), None);
        // An attempt that took longer than its delay has waited enough.
        reconnect.handle_failed(due, due + 20 * SECOND, "no answer".into());
        assert_eq!(reconnect.backing_off(due + 20 * SECOND), None);
    }

    #[test]
    fn a_useful_connection_is_replaced_at_once_and_begins_anew() {
        let (start, rules) = (Instant::now(), Backoff::default());
        let answering = lifespan(start - rules.initial_delay, 1);
        for useful in [answering, lifespan(start - rules.healthy_after, 0)] {
            let mut reconnect = Reconnect::new(rules, 1);
            for _ in 0..10 {
                reconnect.handle_failed(start, start, "no route".into());
            }
            assert!(wait(&reconnect, start) > 6 * SECOND);
            reconnect.handle_lost(useful, start, "reset".into());
            assert_eq!(wait(&reconnect, start), Duration::ZERO);
            reconnect.handle_failed(start, start, "no route".into());
            assert!(wait(&reconnect, start) <= SECOND * 12 / 10);
        }
    }

    #[test]
    fn connections_of_no_use_count_as_failures_after_the_first() {
        let start = Instant::now();
        let mut reconnect = Reconnect::new(Backoff::default(), 1);
        let useless = lifespan(start, 0);
        reconnect.handle_lost(useless, start, "closed".into());
        assert_eq!(wait(&reconnect, start), Duration::ZERO);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            reconnect.handle_lost(useless, start, "closed".into());
            longest = longest.max(wait(&reconnect, start));
            assert!(wait(&reconnect, start) >= SECOND * 8 / 10);
        }
        assert!((9 * SECOND..=10 * SECOND).contains(&longest), "{longest:?}");
    }

    #[test]
    fn news_of_the_server_resets_the_delays() {
        let start = Instant::now();
        let mut reconnect = Reconnect::new(Backoff::default(), 1);
        for _ in 0..20 {
            reconnect.handle_failed(start, start, "no route".into());
        }
        assert!(wait(&reconnect, start) > 6 * SECOND);
        reconnect.reset();
        assert_eq!(wait(&reconnect, start), Duration::ZERO);
        reconnect.handle_failed(start, start, "no route".into());
        assert!(wait(&reconnect, start) <= SECOND * 12 / 10, "the first delay");
    }

    #[test]
    fn ten_young_connections_that_answered_are_replaced_at_once() {
        let start = Instant::now();
        let mut reconnect = Reconnect::new(Backoff::default(), 1);
        for _ in 0..ANSWERED_SPARED_MAX {
            reconnect.handle_lost(lifespan(start, 1), start, "closed".into());
            assert_eq!(wait(&reconnect, start), Duration::ZERO);
        }
        reconnect.handle_lost(lifespan(start, 1), start, "closed".into());
        assert!(wait(&reconnect, start) > Duration::ZERO);
    }

    #[derive(Debug, Clone, Copy)]
    enum Outcome {
        Failed,
        Closed,
        /// After so many answers.
        Answered(u64),
    }

    /// An outcome, and after how many milliseconds.
    fn outcome(answered_within: u64) -> impl Strategy<Value = (Outcome, u64)> {
        let fruitless = prop_oneof![Just(Outcome::Failed), Just(Outcome::Closed)];
        let answered = (1..1000u64).prop_map(Outcome::Answered);
        prop_oneof![(fruitless, 0..5000u64), (answered, 0..answered_within)]
    }

    /// The attempts of eager callers in so many seconds, whose outcomes are these over and over.
    fn attempts(outcomes: &[(Outcome, u64)], seconds: u32, seed: u64) -> u32 {
        let start = Instant::now();
        let mut reconnect = Reconnect::new(Backoff::default(), seed);
        let (mut now, mut attempts) = (start, 0);
        for (outcome, ms) in outcomes.iter().cycle() {
            if now - start > seconds * SECOND {
                break;
            }
            attempts += 1;
            let attempted_at = now;
            // A loop of no time at all would have no end.
            now += Duration::from_millis(*ms).max(Duration::from_micros(1));
            let answered_count = match outcome {
                Outcome::Answered(count) => *count,
                Outcome::Failed | Outcome::Closed => 0,
            };
            let ended = lifespan(attempted_at, answered_count);
            match outcome {
                Outcome::Failed => reconnect.handle_failed(attempted_at, now, "no".into()),
                _ => reconnect.handle_lost(ended, now, "no".into()),
            }
            now += wait(&reconnect, now);
        }
        attempts
    }

    #[test]
    fn chance_makes_delays_shorter_and_longer() {
        let (start, rules) = (Instant::now(), Backoff::default().with_jitter(0.5));
        let delays: Vec<_> = (0..200)
            .map(|seed| {
                let mut reconnect = Reconnect::new(rules, seed);
                reconnect.handle_failed(start, start, "no route".into());
                wait(&reconnect, start).as_secs_f64()
            })
            .collect();
        assert!(delays.iter().all(|delay| (0.5..=1.5).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < 0.6));
        assert!(delays.iter().any(|delay| *delay > 1.4));
    }

    #[test]
    fn the_last_failure_is_known_until_a_connection_ends_in_order() {
        let start = Instant::now();
        let mut reconnect = Reconnect::new(Backoff::default(), 1);
        assert_eq!(reconnect.failure(), None);
        reconnect.handle_failed(start, start, "no route".into());
        assert_eq!(reconnect.failure(), Some(&"no route".into()));
        reconnect.handle_end(Some("reset".into()));
        assert_eq!(reconnect.failure(), Some(&"reset".into()));
        reconnect.handle_end(None);
        assert_eq!(reconnect.failure(), None);
    }

    proptest! {
        /// Whatever a server does short of serving for a second, and however eager the callers are.
        #[test]
        fn attempts_in_ten_minutes_are_few(
            outcomes in prop::collection::vec(outcome(1000), 64),
            seed: u64,
        ) {
            let attempts = attempts(&outcomes, 600, seed);
            // The fifth delay is the longest, 10 s less up to a third.
            prop_assert!(attempts <= 6 + 90 + ANSWERED_SPARED_MAX, "{attempts} attempts");
        }

        /// Whatever a server does: for each second that it serves, those that are spared and one
        /// that makes good the loss of a connection that lasted.
        #[test]
        fn attempts_in_a_minute_are_bounded(
            outcomes in prop::collection::vec(outcome(3000), 1..4),
            seed: u64,
        ) {
            let attempts = attempts(&outcomes, 60, seed);
            prop_assert!(attempts <= (ANSWERED_SPARED_MAX + 2) * 60 + 18, "{attempts} attempts");
        }
    }
}
