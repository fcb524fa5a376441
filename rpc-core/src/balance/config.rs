//! The settings of a channel with many endpoints.

use std::time::Duration;

use crate::settings::{InvalidSetting, check_period, check_timeout, ensure};

/// By which rule a call's endpoint is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The less loaded of two endpoints that are drawn at random. Load is
    /// (calls in flight + 1) x decayed latency x failures / weight.
    #[default]
    LeastLoaded,
    /// One after the other, each as often as its weight says.
    RoundRobin,
    /// The first of the list that is connected. One that does not answer within 250 ms has the next
    /// tried beside it; the first to connect is used.
    PickFirst,
    /// Calls with the same key go to the same endpoint while it lives. A call without a key goes to
    /// any.
    ConsistentHash,
}

crate::setting_words! {
    Policy {
        "least_loaded" => Self::LeastLoaded,
        "round_robin" => Self::RoundRobin,
        "pick_first" => Self::PickFirst,
        "consistent_hash" => Self::ConsistentHash,
    }
}

/// The settings of a channel with many endpoints.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BalanceConfig {
    /// By which rule a call's endpoint is chosen. [`Policy::LeastLoaded`] by default.
    pub policy: Policy,
    /// When an endpoint that fails is left out.
    pub outlier_detection: OutlierDetection,
    /// How an endpoint that has just come gets its share.
    pub slow_start: SlowStart,
    /// Whether endpoints over RDMA are preferred to those over TCP. False by default: one endpoint
    /// with RDMA among many without would have all calls.
    pub prefer_upgraded: bool,
    /// After how long a measured latency or failure counts e times less. From 1 ms to a year.
    ///
    /// 10 s by default, Finagle's and tower's value for the same average.
    pub latency_decay: Duration,
    /// How many connections the channel makes to each endpoint. From 1 to 64; 1 by default.
    ///
    /// One connection is one task on either side, and one congestion window: several have more
    /// cores and more of a long network. Calls are shared among them as among endpoints, and
    /// outlier detection counts each by itself. Under [`Policy::PickFirst`] the others stand in for
    /// the first.
    pub connections: u16,
    /// The service whose health is asked of each endpoint, by gRPC's health service; an empty name
    /// stands for the whole server. `None` by default: a connection is enough.
    ///
    /// An endpoint gets calls while it says that it serves, and keeps its connection otherwise. One
    /// that has no health service is taken as serving.
    pub health_check: Option<String>,
}

/// The most connections to an endpoint. More of them have nothing to gain: each has its own buffers
/// on both sides.
const MAX_CONNECTIONS: u16 = 64;

impl Default for BalanceConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            outlier_detection: OutlierDetection::default(),
            slow_start: SlowStart::default(),
            prefer_upgraded: false,
            latency_decay: Duration::from_secs(10),
            connections: 1,
            health_check: None,
        }
    }
}

impl BalanceConfig {
    /// The default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`policy`](Self::policy).
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets [`outlier_detection`](Self::outlier_detection).
    #[must_use]
    pub fn with_outlier_detection(mut self, rules: OutlierDetection) -> Self {
        self.outlier_detection = rules;
        self
    }

    /// Sets [`slow_start`](Self::slow_start).
    #[must_use]
    pub fn with_slow_start(mut self, rules: SlowStart) -> Self {
        self.slow_start = rules;
        self
    }

    /// Sets [`prefer_upgraded`](Self::prefer_upgraded).
    #[must_use]
    pub fn with_prefer_upgraded(mut self, is_preferred: bool) -> Self {
        self.prefer_upgraded = is_preferred;
        self
    }

    /// Sets [`latency_decay`](Self::latency_decay).
    #[must_use]
    pub fn with_latency_decay(mut self, period: Duration) -> Self {
        self.latency_decay = period;
        self
    }

    /// Sets [`connections`](Self::connections).
    #[must_use]
    pub fn with_connections(mut self, count: u16) -> Self {
        self.connections = count;
        self
    }

    /// Sets [`health_check`](Self::health_check).
    #[must_use]
    pub fn with_health_check(mut self, service: impl Into<Option<String>>) -> Self {
        self.health_check = service.into();
        self
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        check_timeout("balance.latency_decay", self.latency_decay)?;
        let (count, rule) = (self.connections, "from 1 to 64, since each has buffers of its own");
        ensure((1..=MAX_CONNECTIONS).contains(&count), "balance.connections", count, rule)?;
        self.slow_start.check()?;
        self.outlier_detection.check()
    }
}

/// When an endpoint that fails is left out: gRPC's outlier detection (A50), by its names, and
/// Envoy's count of consecutive failures.
///
/// An ejection lasts [`base_ejection_time`](Self::base_ejection_time) times the number of ejections
/// in a row. An ejected endpoint is picked only while no other lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutlierDetection {
    /// After how many failures in a row an endpoint is ejected at once; 0 switches that off.
    /// Failures are `UNAVAILABLE`, `INTERNAL`, `UNKNOWN`, `DATA_LOSS` and `DEADLINE_EXCEEDED`, a
    /// handler's own among them, and a limit that the server has met.
    ///
    /// 5 by default, as Envoy's `consecutive_5xx`.
    pub consecutive_failures: u32,
    /// When the share of failures ejects an endpoint; `None` switches that off.
    pub failure_percentage: Option<FailurePercentage>,
    /// How often shares are looked at and ejected endpoints may return. From 1 ms to a year; 10 s
    /// by default, as A50.
    pub interval: Duration,
    /// How long the first ejection lasts. From 1 ms to a year; 30 s by default, as A50.
    pub base_ejection_time: Duration,
    /// How long any ejection lasts at most. From 1 ms to a year; 300 s by default, as A50. Less
    /// than the base counts as the base.
    pub max_ejection_time: Duration,
    /// While more than this share of the endpoints is ejected, no further one is. From 0 to 100
    /// percent.
    ///
    /// 50 by default, so that a failing half is left out. A50's and Envoy's 10 would eject one of a
    /// handful; they need that for want of the rule that ejected endpoints are the last resort.
    pub max_ejection_percent: u32,
}

/// The share of failures that ejects an endpoint, as A50's `failure_percentage_ejection`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailurePercentage {
    /// More than this share of failures in an interval ejects. From 0 to 100 percent; 85 by
    /// default.
    pub threshold: u32,
    /// No endpoint is ejected for its share unless this many have had
    /// [`request_volume`](Self::request_volume) calls. 5 by default.
    pub minimum_hosts: u32,
    /// An endpoint with fewer calls than this in an interval is not looked at. 50 by default.
    pub request_volume: u32,
}

impl FailurePercentage {
    /// A50's values.
    #[must_use]
    pub const fn new() -> Self {
        Self { threshold: 85, minimum_hosts: 5, request_volume: 50 }
    }

    /// Sets [`threshold`](Self::threshold).
    #[must_use]
    pub const fn with_threshold(mut self, percent: u32) -> Self {
        self.threshold = percent;
        self
    }

    /// Sets [`minimum_hosts`](Self::minimum_hosts).
    #[must_use]
    pub const fn with_minimum_hosts(mut self, count: u32) -> Self {
        self.minimum_hosts = count;
        self
    }

    /// Sets [`request_volume`](Self::request_volume).
    #[must_use]
    pub const fn with_request_volume(mut self, count: u32) -> Self {
        self.request_volume = count;
        self
    }
}

impl Default for FailurePercentage {
    fn default() -> Self {
        Self::new()
    }
}

impl OutlierDetection {
    /// The default rules.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            consecutive_failures: 5,
            failure_percentage: Some(FailurePercentage::new()),
            interval: Duration::from_secs(10),
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_percent: 50,
        }
    }

    /// Rules that eject nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self { consecutive_failures: 0, failure_percentage: None, ..Self::new() }
    }

    /// Sets [`consecutive_failures`](Self::consecutive_failures).
    #[must_use]
    pub const fn with_consecutive_failures(mut self, count: u32) -> Self {
        self.consecutive_failures = count;
        self
    }

    /// Sets [`failure_percentage`](Self::failure_percentage).
    #[must_use]
    pub const fn with_failure_percentage(mut self, rule: Option<FailurePercentage>) -> Self {
        self.failure_percentage = rule;
        self
    }

    /// Sets [`interval`](Self::interval).
    #[must_use]
    pub const fn with_interval(mut self, period: Duration) -> Self {
        self.interval = period;
        self
    }

    /// Sets [`base_ejection_time`](Self::base_ejection_time).
    #[must_use]
    pub const fn with_base_ejection_time(mut self, period: Duration) -> Self {
        self.base_ejection_time = period;
        self
    }

    /// Sets [`max_ejection_time`](Self::max_ejection_time).
    #[must_use]
    pub const fn with_max_ejection_time(mut self, period: Duration) -> Self {
        self.max_ejection_time = period;
        self
    }

    /// Sets [`max_ejection_percent`](Self::max_ejection_percent).
    #[must_use]
    pub const fn with_max_ejection_percent(mut self, percent: u32) -> Self {
        self.max_ejection_percent = percent;
        self
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        check_timeout("balance.outlier_detection.interval", self.interval)?;
        check_timeout("balance.outlier_detection.base_ejection_time", self.base_ejection_time)?;
        check_timeout("balance.outlier_detection.max_ejection_time", self.max_ejection_time)?;
        let check_percent = |name, percent| {
            ensure(percent <= 100, name, percent, "from 0 to 100, since it is a percentage")
        };
        check_percent("balance.outlier_detection.max_ejection_percent", self.max_ejection_percent)?;
        let threshold = self.failure_percentage.map_or(0, |rule| rule.threshold);
        check_percent("balance.outlier_detection.failure_percentage.threshold", threshold)
    }

    /// Whether any rule can eject.
    pub(super) fn is_on(&self) -> bool {
        self.consecutive_failures > 0 || self.failure_percentage.is_some()
    }
}

impl Default for OutlierDetection {
    fn default() -> Self {
        Self::new()
    }
}

/// How an endpoint that has just become ready gets its share: from a part of it to the whole, in a
/// straight line. Caches and connection pools of a server that was just started are cold.
///
/// It holds for [`Policy::LeastLoaded`] and [`Policy::RoundRobin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SlowStart {
    /// How long that takes; zero switches it off, which is the default. At most a year.
    pub window: Duration,
}

impl SlowStart {
    /// The part of its share that an endpoint has at the start: a tenth, as Envoy's
    /// `min_weight_percent`. With none at all it would never warm up.
    pub(super) const FIRST_PART: f32 = 0.1;

    /// A slow start of `window`.
    #[must_use]
    pub const fn new(window: Duration) -> Self {
        Self { window }
    }

    /// Checks that the value is in its range.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        check_period("balance.slow_start.window", self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        let rules = OutlierDetection::new();
        let table = [
            (
                BalanceConfig::new().with_connections(0),
                "balance.connections is 0: from 1 to 64, since each has buffers of its own",
            ),
            (
                BalanceConfig::new().with_latency_decay(Duration::ZERO),
                "balance.latency_decay is 0ns: from 1 ms to 365 days",
            ),
            (
                BalanceConfig::new().with_slow_start(SlowStart::new(Duration::MAX)),
                "balance.slow_start.window is 18446744073709551615",
            ),
            (
                BalanceConfig::new().with_outlier_detection(rules.with_max_ejection_percent(101)),
                "balance.outlier_detection.max_ejection_percent is 101: from 0 to 100",
            ),
            (
                BalanceConfig::new().with_outlier_detection(rules.with_interval(Duration::ZERO)),
                "balance.outlier_detection.interval is 0ns: from 1 ms",
            ),
            (
                BalanceConfig::new().with_outlier_detection(
                    rules.with_failure_percentage(Some(
                        FailurePercentage::new().with_threshold(200),
                    )),
                ),
                "balance.outlier_detection.failure_percentage.threshold is 200: from 0 to 100",
            ),
        ];
        for (config, message) in table {
            let error = config.check().expect_err("a value is out of range").to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(BalanceConfig::new().check(), Ok(()));
        assert_eq!(OutlierDetection::off().check(), Ok(()));
        assert!(!OutlierDetection::off().is_on());
    }
    #[test]
    fn each_setter_sets_its_own_value_and_leaves_the_others() {
        let rule =
            FailurePercentage::new().with_threshold(1).with_minimum_hosts(2).with_request_volume(3);
        assert_eq!(rule, FailurePercentage { threshold: 1, minimum_hosts: 2, request_volume: 3 });
        let seconds = Duration::from_secs;
        let rules = OutlierDetection::new()
            .with_consecutive_failures(4)
            .with_failure_percentage(Some(rule))
            .with_interval(seconds(5))
            .with_base_ejection_time(seconds(6))
            .with_max_ejection_time(seconds(7))
            .with_max_ejection_percent(8);
        let expected = OutlierDetection {
            consecutive_failures: 4,
            failure_percentage: Some(rule),
            interval: seconds(5),
            base_ejection_time: seconds(6),
            max_ejection_time: seconds(7),
            max_ejection_percent: 8,
        };
        assert_eq!(rules, expected);
        let config = BalanceConfig::new()
            .with_policy(Policy::RoundRobin)
            .with_outlier_detection(rules)
            .with_slow_start(SlowStart::new(seconds(9)))
            .with_prefer_upgraded(true)
            .with_latency_decay(seconds(10))
            .with_connections(11)
            .with_health_check("service".to_owned());
        let expected = BalanceConfig {
            policy: Policy::RoundRobin,
            outlier_detection: expected,
            slow_start: SlowStart { window: seconds(9) },
            prefer_upgraded: true,
            latency_decay: seconds(10),
            connections: 11,
            health_check: Some("service".to_owned()),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn outlier_detection_is_on_while_either_rule_is() {
        let off = OutlierDetection::off();
        assert!(!off.is_on());
        assert!(off.with_consecutive_failures(1).is_on());
        assert!(off.with_failure_percentage(Some(FailurePercentage::new())).is_on());
        assert!(OutlierDetection::new().is_on());
    }

    #[test]
    fn the_ends_of_the_ranges_are_in_them() {
        let all = FailurePercentage::new().with_threshold(100);
        let rules = OutlierDetection::new()
            .with_max_ejection_percent(100)
            .with_failure_percentage(Some(all));
        for connections in [1, MAX_CONNECTIONS] {
            let config =
                BalanceConfig::new().with_connections(connections).with_outlier_detection(rules);
            assert_eq!(config.check(), Ok(()));
        }
    }
}
