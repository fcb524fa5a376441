//! Ranges of policies, and sets of status codes.

use super::*;

#[test]
fn values_out_of_range_are_named() {
    let retry = RetryPolicy::default;
    let hedging = HedgingPolicy::default;
    let rate = RetryBudget::default;
    let long = Duration::from_secs(366 * 24 * 3600);
    let named = [
        retry().with_max_attempts(1).check(),
        retry().with_max_attempts(6).check(),
        retry().with_initial_backoff(Duration::ZERO).check(),
        retry().with_max_backoff(long).check(),
        retry().with_max_backoff(Duration::from_millis(99)).check(),
        retry().with_backoff_multiplier(0.0).check(),
        retry().with_backoff_multiplier(f64::NAN).check(),
        retry().with_backoff_multiplier(f64::INFINITY).check(),
        retry().with_retryable_codes([]).check(),
        retry().with_retryable_codes([Code::Ok]).check(),
        hedging().with_max_attempts(1).check(),
        hedging().with_hedging_delay(long).check(),
        hedging().with_non_fatal_codes([Code::Ok]).check(),
        rate().with_ratio(-0.1).check(),
        rate().with_ratio(f32::NAN).check(),
        rate().with_min_per_second(1_000_001).check(),
        rate().with_period(Duration::from_millis(999)).check(),
        rate().with_period(Duration::from_secs(61)).check(),
        RetryBudget::throttling(0, 0.1).check(),
        RetryBudget::throttling(1001, 0.1).check(),
        RetryBudget::throttling(10, 0.0).check(),
        RetryBudget::throttling(10, f64::NAN).check(),
    ];
    let names = named.map(|checked| checked.unwrap_err().name().to_owned());
    let expected = [
        "retry.max_attempts",
        "retry.max_attempts",
        "retry.initial_backoff",
        "retry.max_backoff",
        "retry.max_backoff",
        "retry.backoff_multiplier",
        "retry.backoff_multiplier",
        "retry.backoff_multiplier",
        "retry.retryable_codes",
        "retry.retryable_codes",
        "hedging.max_attempts",
        "hedging.hedging_delay",
        "hedging.non_fatal_codes",
        "retry_budget.ratio",
        "retry_budget.ratio",
        "retry_budget.min_per_second",
        "retry_budget.period",
        "retry_budget.period",
        "retry_throttling.max_tokens",
        "retry_throttling.max_tokens",
        "retry_throttling.token_ratio",
        "retry_throttling.token_ratio",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_ends_of_each_range_are_in_it() {
    let (retry, hedging, rate) =
        (RetryPolicy::default(), HedgingPolicy::default(), RetryBudget::default());
    let ms = Duration::from_millis(1);
    let checked = [
        retry.with_max_attempts(2).check(),
        retry.with_max_attempts(5).check(),
        retry.with_initial_backoff(ms).with_max_backoff(ms).check(),
        hedging.with_hedging_delay(Duration::ZERO).with_non_fatal_codes([]).check(),
        rate.with_ratio(0.0).with_min_per_second(0).check(),
        rate.with_ratio(10.0).with_period(Duration::from_secs(60)).check(),
        RetryBudget::throttling(1, 0.001).check(),
        RetryBudget::throttling(1000, 1000.0).check(),
        RetryBudget::default().check(),
    ];
    for checked in checked {
        assert_eq!(checked, Ok(()));
    }
}

#[test]
fn names_and_numbers_are_those_of_the_codes() {
    for number in 0..17 {
        let code = Code::from_i32(number);
        let name = NAMES[usize::try_from(number).unwrap()];
        assert_eq!(code_of_name(name), Some(code));
        assert_eq!(code_of_name(&name.to_lowercase()), Some(code));
        // tonic's name is the same without underscores.
        assert_eq!(format!("{code:?}").to_uppercase(), name.replace('_', ""));
    }
    assert_eq!(code_of_name("UNAVAILABLY"), None);
}

#[test]
fn a_set_has_what_was_put_into_it() {
    let codes = Codes::from([Code::Unavailable, Code::Ok, Code::Unauthenticated]);
    let has: Vec<_> = (0..17).filter(|&it| codes.contains(Code::from_i32(it))).collect();
    assert_eq!(has, [0, 14, 16]);
    assert_eq!(format!("{codes:?}"), r#"["OK", "UNAVAILABLE", "UNAUTHENTICATED"]"#);
    assert!(Codes::NONE.is_empty() && !codes.is_empty());
}
