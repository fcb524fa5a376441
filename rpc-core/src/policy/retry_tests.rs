//! Attempts one after another and side by side, the tokens that stop both, and the retry budget.

use proptest::prelude::*;
use tonic::Code;

use super::*;
use crate::policy::retry_config::Codes;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_number_is_a_delay_and_anything_else_stops() {
    let ms = |ms| Pushback::After(Duration::from_millis(ms));
    let table: [(Option<&[u8]>, _); 9] = [
        (None, Pushback::Unsaid),
        (Some(b"0"), ms(0)),
        (Some(b"250"), ms(250)),
        (Some(b"2147483647"), ms(2_147_483_647)),
        (Some(b"2147483648"), Pushback::Stop),
        (Some(b"-1"), Pushback::Stop),
        (Some(b""), Pushback::Stop),
        (Some(b"soon"), Pushback::Stop),
        (Some(b"\xff"), Pushback::Stop),
    ];
    for (value, expected) in table {
        assert_eq!(Pushback::read(value), expected, "{value:?}");
    }
}

fn failure(code: Code, pushback: Pushback) -> Failure {
    Failure { code, pushback, is_repeatable: true }
}

fn unsaid(code: Code) -> Failure {
    failure(code, Pushback::Unsaid)
}

fn is_about(delay: Option<Duration>, ms: f64) -> bool {
    let delay = delay.expect("there is another attempt").as_secs_f64() * 1000.0;
    (ms * 0.799..=ms * 1.201).contains(&delay)
}

#[test]
fn delays_grow_up_to_the_longest_and_attempts_end() {
    let policy = RetryPolicy::default().with_max_attempts(5).with_max_backoff(300 * MS);
    let mut retries = Retries::new(policy, 7);
    for (previous, ms) in [(1, 100.0), (2, 200.0), (3, 300.0), (4, 300.0)] {
        assert!(is_about(retries.failed(&unsaid(Code::Unavailable)), ms));
        assert_eq!(retries.previous(), previous);
    }
    assert_eq!(retries.failed(&unsaid(Code::Unavailable)), None);
}

#[test]
fn a_pushback_is_kept_to_and_the_next_delay_is_the_first() {
    let policy = RetryPolicy::default().with_max_attempts(5);
    let mut retries = Retries::new(policy, 7);
    assert!(is_about(retries.failed(&unsaid(Code::Unavailable)), 100.0));
    let pushed = Failure { pushback: Pushback::After(7 * MS), ..unsaid(Code::Unavailable) };
    assert_eq!(retries.failed(&pushed), Some(7 * MS));
    assert!(is_about(retries.failed(&unsaid(Code::Unavailable)), 100.0));
    let stop = Failure { pushback: Pushback::Stop, ..unsaid(Code::Unavailable) };
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
    fn only_repeatable_calls_are_retried_within_the_policy(
        failures in prop::collection::vec(any_failure(), 0..20),
        max_attempts in 2..=5u32,
        codes in prop::collection::vec(1..17, 1..17),
        seed: u64,
    ) {
        let codes: Codes = codes.into_iter().map(Code::from_i32).collect();
        let policy = RetryPolicy::default().with_max_attempts(max_attempts);
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

#[test]
fn hedges_follow_by_delay_and_the_last_failure_counts() {
    let start = Instant::now();
    let policy = HedgingPolicy::default().with_max_attempts(3).with_hedging_delay(10 * MS);
    let mut hedges = Hedges::new(policy, start);
    assert_eq!(hedges.next_deadline(), Some(start));
    assert_eq!(hedges.sent(start), 0);
    assert_eq!(hedges.next_deadline(), Some(start + 10 * MS));
    assert_eq!(hedges.sent(start + 10 * MS), 1);
    let (later, unsaid) = (start + 12 * MS, Pushback::Unsaid);
    let pending = hedges.failed(&failure(Code::Unavailable, unsaid), later);
    assert_eq!((pending, hedges.next_deadline()), (Outcome::Pending, Some(later)));
    assert_eq!(hedges.sent(later), 2);
    assert_eq!(hedges.next_deadline(), None);
    let pending = hedges.failed(&failure(Code::Unavailable, unsaid), later);
    assert_eq!(pending, Outcome::Pending);
    let ended = hedges.failed(&failure(Code::Unavailable, unsaid), later);
    assert_eq!(ended, Outcome::Ended);
}

#[test]
fn a_fatal_code_ends_the_call_and_a_server_may_delay_or_stop_it() {
    let start = Instant::now();
    let policy = HedgingPolicy::default().with_max_attempts(4).with_hedging_delay(10 * MS);
    let hedges = || {
        let mut hedges = Hedges::new(policy, start);
        hedges.sent(start);
        hedges.sent(start + 10 * MS);
        hedges
    };
    let mut ended = hedges();
    let fatal = failure(Code::NotFound, Pushback::Unsaid);
    assert_eq!(ended.failed(&fatal, start), Outcome::Ended);
    assert_eq!(ended.next_deadline(), None);
    let mut delayed = hedges();
    let later = failure(Code::Unavailable, Pushback::After(50 * MS));
    assert_eq!(delayed.failed(&later, start), Outcome::Pending);
    assert_eq!(delayed.next_deadline(), Some(start + 50 * MS));
    let mut stopped = hedges();
    let stop = failure(Code::Unavailable, Pushback::Stop);
    assert_eq!(stopped.failed(&stop, start), Outcome::Pending);
    assert_eq!(stopped.next_deadline(), None);
    assert_eq!(stopped.failed(&stop, start), Outcome::Ended);
    let mut refused = hedges();
    assert_eq!(refused.give_up(), Outcome::Pending);
    assert_eq!(refused.next_deadline(), None);
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    Fail(i32, Option<u32>),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Send),
        4 => (1..17, prop::option::of(0..100u32))
            .prop_map(|(code, ms)| Step::Fail(code, ms)),
        1 => Just(Step::GiveUp),
    ]
}

proptest! {
    /// A call that is not ended has an attempt in flight or one to come.
    #[test]
    fn a_call_ends_with_its_last_attempt_and_never_waits_for_none(
        max_attempts in 2..=5u32,
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let now = Instant::now();
        let policy = HedgingPolicy::default()
            .with_max_attempts(max_attempts)
            .with_non_fatal_codes([Code::Unavailable, Code::Aborted, Code::Internal]);
        let mut hedges = Hedges::new(policy, now);
        let (mut sent, mut in_flight) = (0, 0);
        for step in steps {
            let outcome = match step {
                Step::Send if hedges.next_deadline().is_some() => {
                    prop_assert_eq!(hedges.sent(now), sent);
                    sent += 1;
                    in_flight += 1;
                    Outcome::Pending
                }
                Step::Fail(code, ms) if in_flight > 0 => {
                    in_flight -= 1;
                    let code = Code::from_i32(code);
                    let pushback = ms.map_or(Pushback::Unsaid, |ms| Pushback::After(ms * MS));
                    hedges.failed(&failure(code, pushback), now)
                }
                Step::GiveUp if sent > 0 => hedges.give_up(),
                _ => continue,
            };
            prop_assert!(sent <= max_attempts);
            if outcome == Outcome::Ended {
                prop_assert_eq!(hedges.next_deadline(), None);
                break;
            }
            prop_assert!(in_flight > 0 || hedges.next_deadline().is_some());
        }
    }
}

#[test]
fn half_of_the_tokens_are_the_threshold() {
    let tokens = Tokens::new(Throttling { max_tokens: 4, token_ratio: 0.5 });
    tokens.failed();
    assert!(tokens.allow());
    tokens.failed();
    assert!(!tokens.allow(), "two of four are no more than half");
    tokens.succeeded();
    assert!(tokens.allow());
}

#[test]
fn decimal_places_beyond_the_third_are_cut_off() {
    let tokens = Tokens::new(Throttling { max_tokens: 2, token_ratio: 0.5466 });
    assert_eq!(tokens.gain, 546);
}

proptest! {
    #[test]
    fn tokens_stay_between_none_and_all(
        max in 1..=1000u32,
        ratio in 0.001..1000.0f64,
        steps in prop::collection::vec(any::<bool>(), 0..3000),
    ) {
        let tokens = Tokens::new(Throttling { max_tokens: max, token_ratio: ratio });
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

#[test]
fn a_burst_is_refilled_by_the_second() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(ReplayLimits { max_burst: 2, per_second: 10 }, now);
    assert!(budget.take(now) && budget.take(now) && !budget.take(now));
    let later = now + Duration::from_millis(100);
    assert!(budget.take(later) && !budget.take(later));
    let much_later = now + Duration::from_secs(100);
    assert!(budget.take(much_later) && budget.take(much_later) && !budget.take(much_later));
}

#[test]
fn none_are_none() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(ReplayLimits { max_burst: 0, per_second: 1000 }, now);
    assert!(!budget.take(now + Duration::from_secs(10)));
    let mut budget = RetryBudget::new(ReplayLimits { max_burst: 1, per_second: 0 }, now);
    assert!(budget.take(now) && !budget.take(now + Duration::from_secs(1000)));
}

#[test]
fn a_bucket_in_use_has_its_burst_and_what_time_gave() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let mut budget = RetryBudget::new(ReplayLimits { max_burst: 8, per_second: 10 }, start);
    let mut taken = 0;
    // Two at a time, for one that comes back; half of an interval is not lost either.
    for step in 0..40 {
        let now = start + step * 150 * ms;
        taken += u32::from(budget.take(now)) + u32::from(budget.take(now));
    }
    assert_eq!(taken, 8 + 39 * 150 / 100);
}

#[test]
fn time_beyond_a_full_bucket_is_not_saved() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let mut budget = RetryBudget::new(ReplayLimits { max_burst: 2, per_second: 10 }, start);
    assert!(budget.take(start) && budget.take(start));
    let full = start + 250 * ms;
    assert!(budget.take(full) && budget.take(full) && !budget.take(full));
    assert!(!budget.take(full + 50 * ms));
    assert!(budget.take(full + 100 * ms));
}

proptest! {
    #[test]
    fn never_more_than_the_burst_and_what_time_gave(
        max_burst in 0..20u32,
        per_second in any::<u32>(),
        waits in prop::collection::vec(0..300u64, 0..200),
    ) {
        let start = Instant::now();
        let per_second = per_second % 1000;
        let mut budget = RetryBudget::new(ReplayLimits { max_burst, per_second }, start);
        let (mut now, mut taken) = (start, 0);
        for ms in waits {
            now += Duration::from_millis(ms);
            taken += u64::from(budget.take(now));
            let most = (now - start).as_millis() * u128::from(per_second) / 999 + 1;
            prop_assert!(u128::from(taken) <= u128::from(max_burst) + most);
        }
    }
}
