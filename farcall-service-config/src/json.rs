//! gRPC's service config in the JSON form that its other clients use.

use std::fmt;
use std::time::Duration;

use farcall::retry::{Codes, HedgingPolicy, MethodConfig, RetryBudget, RetryPolicy};
use farcall::{Code, InvalidSetting};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::ServiceConfig;

/// The reason why a text is not a service config. Names the place in the text.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("service config: {place}{problem}")]
pub struct ServiceConfigError {
    /// The place, such as `methodConfig[0].retryPolicy.maxAttempts: `; empty for the whole text.
    place: String,
    problem: String,
}

/// Prints the message, since a `main` that returns the error prints its `Debug`.
impl fmt::Debug for ServiceConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

type Result<T> = std::result::Result<T, ServiceConfigError>;

/// Maximum number of attempts per call in a farcall policy, as in gRPC.
const MAX_ATTEMPTS: u32 = 5;

/// The status codes by name. The index is the number.
const CODES: [(&str, Code); 17] = [
    ("OK", Code::Ok),
    ("CANCELLED", Code::Cancelled),
    ("UNKNOWN", Code::Unknown),
    ("INVALID_ARGUMENT", Code::InvalidArgument),
    ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    ("NOT_FOUND", Code::NotFound),
    ("ALREADY_EXISTS", Code::AlreadyExists),
    ("PERMISSION_DENIED", Code::PermissionDenied),
    ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
    ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ("ABORTED", Code::Aborted),
    ("OUT_OF_RANGE", Code::OutOfRange),
    ("UNIMPLEMENTED", Code::Unimplemented),
    ("INTERNAL", Code::Internal),
    ("UNAVAILABLE", Code::Unavailable),
    ("DATA_LOSS", Code::DataLoss),
    ("UNAUTHENTICATED", Code::Unauthenticated),
];

/// Reads a service config. [`ServiceConfig::from_json`] lists the supported keys.
pub(crate) fn read(text: &str) -> Result<ServiceConfig> {
    let value: Value = serde_json::from_str(text).map_err(|error| ServiceConfigError {
        place: String::new(),
        problem: format!("not JSON: {error}"),
    })?;
    let root = At { place: String::new(), value: &value };
    let fields = root.object()?;
    let mut config = ServiceConfig::default();
    for part in fields.list("methodConfig")? {
        let method = part.method_config()?;
        for at in part.object()?.list("name")? {
            let name = at.name()?;
            if config.methods.iter().any(|(other, _)| *other == name) {
                return Err(at.error("another entry has the same name"));
            }
            config.methods.push((name, method.clone()));
        }
    }
    if let Some(throttling) = fields.get("retryThrottling") {
        config.retry_budget = Some(throttling.throttling()?);
    }
    Ok(config)
}

/// A value and its place in the text.
struct At<'a> {
    place: String,
    value: &'a Value,
}

/// An object and its place in the text.
struct Fields<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Returns the value of a key. JSON's `null` counts as absent, as in protobuf's JSON.
    fn get(&self, key: &str) -> Option<At<'a>> {
        let value = self.fields.get(key).filter(|value| !value.is_null())?;
        let dot = if self.place.is_empty() { "" } else { "." };
        Some(At { place: format!("{}{dot}{key}", self.place), value })
    }

    fn required(&self, key: &str) -> Result<At<'a>> {
        let place = if self.place.is_empty() { String::new() } else { format!("{}: ", self.place) };
        let problem = format!("`{key}` is missing");
        self.get(key).ok_or(ServiceConfigError { place, problem })
    }

    /// Returns the elements of a list; empty if the key is absent.
    fn list(&self, key: &str) -> Result<Vec<At<'a>>> {
        self.get(key).map_or(Ok(Vec::new()), |at| at.list())
    }
}

impl<'a> At<'a> {
    fn error(&self, problem: impl Into<String>) -> ServiceConfigError {
        let place = if self.place.is_empty() { String::new() } else { format!("{}: ", self.place) };
        ServiceConfigError { place, problem: problem.into() }
    }

    /// Returns the error for a value of another type than `expected`.
    fn mistyped(&self, expected: &str) -> ServiceConfigError {
        self.error(format!("expected {expected}, found {}", self.value))
    }

    fn checked<T>(&self, value: T, checked: std::result::Result<(), InvalidSetting>) -> Result<T> {
        let wrong = |error: InvalidSetting| {
            self.error(format!("{} is {}: {}", error.name(), error.value(), error.rule()))
        };
        checked.map(|()| value).map_err(wrong)
    }

    fn object(&self) -> Result<Fields<'a>> {
        let fields = self.value.as_object().ok_or_else(|| self.mistyped("an object"))?;
        Ok(Fields { place: self.place.clone(), fields })
    }

    fn list(&self) -> Result<Vec<At<'a>>> {
        let values = self.value.as_array().ok_or_else(|| self.mistyped("a list"))?;
        let at = |(index, value)| At { place: format!("{}[{index}]", self.place), value };
        Ok(values.iter().enumerate().map(at).collect())
    }

    fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.mistyped("text"))
    }

    fn boolean(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.mistyped("true or false"))
    }

    fn number(&self) -> Result<f64> {
        self.value.as_f64().ok_or_else(|| self.mistyped("a number"))
    }

    /// Parses an integer, which protobuf's JSON may write as text.
    fn integer(&self) -> Result<u64> {
        let from_text = || self.value.as_str().and_then(|text| text.parse().ok());
        let found = self.value.as_u64().or_else(from_text);
        found.ok_or_else(|| self.mistyped("an integer that is not negative"))
    }

    /// Parses protobuf's Duration: seconds with up to nine decimal places, and an `s`.
    fn duration(&self) -> Result<Duration> {
        let expected = "a duration such as \"0.5s\"";
        let text = self.value.as_str().ok_or_else(|| self.mistyped(expected))?;
        seconds(text).ok_or_else(|| self.mistyped(expected))
    }

    fn codes(&self) -> Result<Codes> {
        self.list()?.iter().map(At::code).collect()
    }

    fn code(&self) -> Result<Code> {
        let number = self.value.as_i64().and_then(|number| usize::try_from(number).ok());
        let is_name = |it: &(&str, Code)| {
            self.value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(it.0))
        };
        let named = || CODES.iter().find(|it| is_name(it));
        let found = number.and_then(|number| CODES.get(number)).or_else(named);
        found
            .map(|(_, code)| *code)
            .ok_or_else(|| self.mistyped("a status code such as \"UNAVAILABLE\" or 14"))
    }

    /// Parses a name into the form that `ChannelBuilder::method` accepts.
    fn name(&self) -> Result<String> {
        let fields = self.object()?;
        let text = |key| fields.get(key).map_or(Ok(""), |at| at.text());
        let name = match (text("service")?, text("method")?) {
            ("", "") => return Ok("*".to_owned()),
            ("", _) => return Err(self.error("`method` needs a `service`")),
            (service, _) if service.contains('/') || service == "*" => {
                return Err(self.error(format!("{service:?} is not a service's full name")));
            }
            (service, "") => service.to_owned(),
            (service, method) => format!("/{service}/{method}"),
        };
        self.checked((), MethodConfig::check_name(&name))?;
        Ok(name)
    }

    fn method_config(&self) -> Result<MethodConfig> {
        let (fields, mut config) = (self.object()?, MethodConfig::default());
        if let Some(at) = fields.get("timeout") {
            config = config.with_timeout(at.duration()?);
            at.checked((), config.check())?;
        }
        if let Some(at) = fields.get("waitForReady") {
            config = config.with_wait_for_ready(at.boolean()?);
        }
        let len = |at: At<'_>| at.integer().map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        if let Some(at) = fields.get("maxRequestMessageBytes") {
            config = config.with_max_request_len(len(at)?);
        }
        if let Some(at) = fields.get("maxResponseMessageBytes") {
            config = config.with_max_response_len(len(at)?);
        }
        match (fields.get("retryPolicy"), fields.get("hedgingPolicy")) {
            (Some(_), Some(_)) => {
                Err(self.error("retryPolicy and hedgingPolicy exclude each other"))
            }
            (Some(at), None) => Ok(config.with_retry(at.retry_policy()?)),
            (None, Some(at)) => Ok(config.with_hedging(at.hedging_policy()?)),
            (None, None) => Ok(config),
        }
    }

    fn max_attempts(&self) -> Result<u32> {
        let at = self.object()?.required("maxAttempts")?;
        let count = at.integer()?.min(MAX_ATTEMPTS.into());
        Ok(u32::try_from(count).unwrap_or(MAX_ATTEMPTS))
    }

    fn retry_policy(&self) -> Result<RetryPolicy> {
        let fields = self.object()?;
        let policy = RetryPolicy::default()
            .with_max_attempts(self.max_attempts()?)
            .with_initial_backoff(fields.required("initialBackoff")?.duration()?)
            .with_max_backoff(fields.required("maxBackoff")?.duration()?)
            .with_backoff_multiplier(fields.required("backoffMultiplier")?.number()?)
            .with_retryable_codes(fields.required("retryableStatusCodes")?.codes()?);
        self.checked(policy, policy.check())
    }

    fn hedging_policy(&self) -> Result<HedgingPolicy> {
        let fields = self.object()?;
        let delay = fields.get("hedgingDelay").map_or(Ok(Duration::ZERO), |at| at.duration())?;
        let codes = fields.get("nonFatalStatusCodes").map_or(Ok(Codes::NONE), |at| at.codes())?;
        let policy = HedgingPolicy::default()
            .with_max_attempts(self.max_attempts()?)
            .with_hedging_delay(delay)
            .with_non_fatal_codes(codes);
        self.checked(policy, policy.check())
    }

    fn throttling(&self) -> Result<RetryBudget> {
        let fields = self.object()?;
        let tokens = fields.required("maxTokens")?.integer()?;
        let ratio = fields.required("tokenRatio")?.number()?;
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let throttling = RetryBudget::throttling(tokens, ratio);
        self.checked(throttling, throttling.check())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_keys_are_read() {
        let config = ServiceConfig::from_json(
            r#"{
                "loadBalancingConfig": [{"round_robin": {}}],
                "methodConfig": [
                    {
                        "name": [{"service": "shop.Cart", "method": "Get"}, {}],
                        "timeout": "1.5s",
                        "waitForReady": true,
                        "maxRequestMessageBytes": 1024,
                        "maxResponseMessageBytes": "2048",
                        "hedgingPolicy": {
                            "maxAttempts": 9,
                            "hedgingDelay": "0.010s",
                            "nonFatalStatusCodes": [14, "aborted"]
                        }
                    },
                    {
                        "name": [{"service": "shop.Cart"}],
                        "retryPolicy": {
                            "maxAttempts": 4,
                            "initialBackoff": "0.1s",
                            "maxBackoff": "1s",
                            "backoffMultiplier": 1.5,
                            "retryableStatusCodes": ["UNAVAILABLE"]
                        }
                    }
                ],
                "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
            }"#,
        )
        .unwrap();
        let ms = Duration::from_millis;
        let hedging = HedgingPolicy::default()
            .with_max_attempts(5)
            .with_hedging_delay(ms(10))
            .with_non_fatal_codes([Code::Unavailable, Code::Aborted]);
        let hedged = MethodConfig::default()
            .with_timeout(ms(1500))
            .with_wait_for_ready(true)
            .with_max_request_len(1024)
            .with_max_response_len(2048)
            .with_hedging(hedging);
        let retries = RetryPolicy::default().with_max_attempts(4).with_backoff_multiplier(1.5);
        let expected = [
            ("/shop.Cart/Get", hedged.clone()),
            ("*", hedged),
            ("shop.Cart", MethodConfig::default().with_retry(retries)),
        ];
        assert_eq!(config.methods, expected.map(|(name, config)| (name.to_owned(), config)));
        let budget = RetryBudget::throttling(10, 0.1);
        assert_eq!(config.retry_budget, Some(budget));
        let channel = farcall::Channel::builder("tcp://127.0.0.1:1").unwrap();
        drop(config.apply(channel));
    }

    #[test]
    fn code_names_match_farcalls() {
        for (number, (name, code)) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, number);
            assert_eq!(format!("{:?}", Codes::from([code])), format!("[{name:?}]"));
        }
    }

    #[test]
    fn an_error_names_its_place() {
        let policy = |policy: &str| format!(r#"{{"methodConfig": [{{"retryPolicy": {policy}}}]}}"#);
        let full = |attempts: &str, backoff: &str, codes: &str| {
            policy(&format!(
                r#"{{"maxAttempts": {attempts}, "initialBackoff": {backoff}, "maxBackoff": "1s",
                    "backoffMultiplier": 2, "retryableStatusCodes": {codes}}}"#
            ))
        };
        let unavailable = r#"["UNAVAILABLE"]"#;
        let retry = "methodConfig[0].retryPolicy";
        let table = [
            ("[]".to_owned(), "expected an object, found []".to_owned()),
            (
                r#"{"methodConfig": {}}"#.to_owned(),
                "methodConfig: expected a list, found {}".to_owned(),
            ),
            (policy("{}"), format!("{retry}: `maxAttempts` is missing")),
            (
                full("1", r#""0.1s""#, unavailable),
                format!(
                    "{retry}: retry.max_attempts is 1: from 2 to 5: one is no retry, and more \
                     would flood the server"
                ),
            ),
            (
                full("2", "0.1", unavailable),
                format!("{retry}.initialBackoff: expected a duration such as \"0.5s\", found 0.1"),
            ),
            (
                full("2", r#""0.1s""#, r#"["UNAVAILABLY"]"#),
                format!(
                    "{retry}.retryableStatusCodes[0]: expected a status code such as \
                     \"UNAVAILABLE\" or 14, found \"UNAVAILABLY\""
                ),
            ),
            (
                r#"{"methodConfig": [{"name": [{"method": "Get"}]}]}"#.to_owned(),
                "methodConfig[0].name[0]: `method` needs a `service`".to_owned(),
            ),
            (
                r#"{"methodConfig": [{"name": [{}]}, {"name": [{}]}]}"#.to_owned(),
                "methodConfig[1].name[0]: another entry has the same name".to_owned(),
            ),
            (
                r#"{"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}"#.to_owned(),
                "retryThrottling: retry_throttling.max_tokens is 0: from 1 to 1000".to_owned(),
            ),
        ];
        for (text, message) in table {
            let error = ServiceConfig::from_json(&text).unwrap_err();
            assert_eq!(error.to_string(), format!("service config: {message}"));
        }
        let error = ServiceConfig::from_json("{").unwrap_err().to_string();
        assert!(error.starts_with("service config: not JSON: "), "{error}");
    }

    #[test]
    fn durations_follow_protobuf() {
        let table = [
            ("1s", Some(Duration::from_secs(1))),
            ("0.000000001s", Some(Duration::from_nanos(1))),
            ("3.5s", Some(Duration::from_millis(3500))),
            ("1", None),
            ("s", None),
            (".5s", None),
            ("-1s", None),
            ("+1s", None),
            ("1.s", Some(Duration::from_secs(1))),
            ("1.0000000001s", None),
            ("18446744073709551616s", None),
        ];
        for (text, expected) in table {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    /// Returns this number, or any other.
    fn number(right: &'static str) -> impl Strategy<Value = String> {
        prop_oneof![Just(right.to_owned()), any::<i64>().prop_map(|it| it.to_string())]
    }

    fn finite() -> impl Strategy<Value = f64> {
        prop_oneof![Just(2.0), any::<f64>().prop_filter("JSON has no others", |it| it.is_finite())]
    }

    proptest! {
        /// Every accepted text yields values within their ranges.
        #[test]
        fn no_text_panics_and_accepted_values_are_valid(
            attempts in number("2"),
            backoff in prop_oneof![Just("0.1s".to_owned()), "[0-9]{0,22}(\\.[0-9]{0,10})?s?"],
            multiplier in finite(),
            code in number("14"),
            tail in "\\PC{0,20}",
        ) {
            let text = format!(
                r#"{{"methodConfig": [{{"name": [{{}}], "retryPolicy": {{
                    "maxAttempts": {attempts}, "initialBackoff": "{backoff}", "maxBackoff": "1s",
                    "backoffMultiplier": {multiplier}, "retryableStatusCodes": [{code}]}}}}]}}"#
            );
            if let Ok(config) = ServiceConfig::from_json(&text) {
                let (name, method) = &config.methods[0];
                prop_assert_eq!(name, "*");
                prop_assert!(method.retry.is_some() && method.check().is_ok());
                drop(config.apply(farcall::Channel::builder("tcp://127.0.0.1:1").unwrap()));
            }
            let _ = ServiceConfig::from_json(&tail);
            let _ = ServiceConfig::from_json(&format!("{text}{tail}"));
        }
    }
}
