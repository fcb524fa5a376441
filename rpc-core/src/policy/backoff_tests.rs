//! Backoff of a channel, and the delays themselves.

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

#[test]
fn values_out_of_range_are_named_with_their_range() {
    let (new, zero) = (Backoff::default, Duration::ZERO);
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
    (any::<Duration>(), any::<Duration>(), factor, spread)
        .prop_map(|(initial, max, multiplier, spread)| Curve { initial, max, multiplier, spread })
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
