//! The settings of a channel with many endpoints.

use std::time::Duration;

use crate::settings::{COMPUTED, InvalidSetting, MAX_DURATION, NO_TIME, TIMEOUT, define_settings};

/// The reason for the range of percentages.
const A_PERCENTAGE: &str = "it is a percentage";

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

/// The most connections to an endpoint. More of them have nothing to gain: each has its own buffers
/// on both sides.
const MAX_CONNECTIONS: u16 = 64;

define_settings! {
    /// The choice of a server for each call, where the address names several.
    BalanceConfig, BalanceOverlay, "balance", [], derive(PartialEq) {
        /// "least_loaded" of two, "round_robin", "pick_first", or "consistent_hash" by a key.
        policy, with_policy: Policy as Plain = Policy::LeastLoaded, Start, .., "";
        /// Prefers servers over RDMA to those over TCP.
        ///
        /// False by default: one endpoint with RDMA among many without would have all calls.
        prefer_upgraded, with_prefer_upgraded: bool as Plain = false, Start, .., "";
        /// Time after which a measured latency or failure counts e times less.
        ///
        /// From 1 ms to a year. 10 s by default, Finagle's and tower's value for the same average.
        latency_decay, with_latency_decay: Duration as Plain = Duration::from_secs(10), CodeOnly,
            TIMEOUT, NO_TIME;
        /// Number of connections that the channel makes to each server. From 1 to 64.
        ///
        /// 1 by default. One connection is one task on either side, and one congestion window:
        /// several have more cores and more of a long network. Calls are shared among them as among
        /// endpoints, and outlier detection counts each by itself. Under [`Policy::PickFirst`] the
        /// others stand in for the first.
        connections, with_connections: u16 as Plain = 1, Start,
            1..=MAX_CONNECTIONS, "each has buffers of its own";
        /// Name of the service whose health each server is asked, by gRPC's health service; "" for
        /// the whole server, or "off".
        ///
        /// `None` by default: a connection is enough. An endpoint gets calls while it says that it
        /// serves, and keeps its connection otherwise. One that has no health service is taken as
        /// serving.
        health_check: Option<String> as OrOff = None, Start, .., "";
        /// Time that a server that has just come takes to have its whole share.
        ///
        /// `None` by default; at most a year. The rise is linear, from a tenth to the whole: caches
        /// and connection pools of a server that has just started are cold. Applies to
        /// [`Policy::LeastLoaded`] and [`Policy::RoundRobin`].
        slow_start: Option<Duration> as OrOff = None, Start, ..=MAX_DURATION, COMPUTED;
    } groups {
        /// Ejection of servers that fail.
        outlier_detection, with_outlier_detection: OutlierDetection, OutlierDetectionOverlay, Live;
    }
}

impl BalanceConfig {
    /// Sets [`health_check`](Self::health_check).
    #[must_use]
    pub fn with_health_check(mut self, service: impl Into<Option<String>>) -> Self {
        self.health_check = service.into();
        self
    }

    /// Sets [`slow_start`](Self::slow_start).
    #[must_use]
    pub fn with_slow_start(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.slow_start = time.into();
        self
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}

define_settings! {
    /// Ejection of servers that fail.
    ///
    /// It follows gRPC's outlier detection (A50), under the same names, and adds Envoy's count of
    /// consecutive failures. An ejection lasts [`base_ejection_time`](Self::base_ejection_time)
    /// times the number of ejections in a row. An ejected endpoint is picked only while no other
    /// lives.
    OutlierDetection, OutlierDetectionOverlay, "balance.outlier_detection", [const],
    derive(Copy, PartialEq, Eq) {
        /// Failures in a row after which a server is left out at once; 0 switches that off.
        ///
        /// Failures are `UNAVAILABLE`, `INTERNAL`, `UNKNOWN`, `DATA_LOSS` and `DEADLINE_EXCEEDED`,
        /// a handler's own among them, and a limit that the server has met. 5 by default, as
        /// Envoy's `consecutive_5xx`.
        consecutive_failures, with_consecutive_failures: u32 as Plain = 5, Start, .., "";
        /// Percentage of failures in an interval that is too much; "off" counts no share of
        /// failures.
        ///
        /// From 0 to 100 percent; 85 by default, as A50's `failure_percentage_ejection`.
        threshold, with_threshold: Option<u32> as CountOrOff = Some(85), Start,
            0..=100, A_PERCENTAGE;
        /// Number of servers that must have had enough calls for shares to count.
        ///
        /// 5 by default, as A50.
        minimum_hosts, with_minimum_hosts: u32 as Plain = 5, CodeOnly, .., "";
        /// Calls in an interval that are enough.
        ///
        /// An endpoint with fewer is not looked at. 50 by default, as A50.
        request_volume, with_request_volume: u32 as Plain = 50, CodeOnly, .., "";
        /// Time between two looks at the shares, at which servers may return, too.
        ///
        /// From 1 ms to a year; 10 s by default, as A50.
        interval, with_interval: Duration as Plain = Duration::from_secs(10), Start,
            TIMEOUT, NO_TIME;
        /// Time that a server is left out at first; each time in a row adds as much.
        ///
        /// From 1 ms to a year; 30 s by default, as A50.
        base_ejection_time, with_base_ejection_time: Duration as Plain = Duration::from_secs(30),
            Start, TIMEOUT, NO_TIME;
        /// Maximum time that a server is left out.
        ///
        /// From 1 ms to a year; 300 s by default, as A50. Less than the base counts as the base.
        max_ejection_time, with_max_ejection_time: Duration as Plain = Duration::from_secs(300),
            Start, TIMEOUT, NO_TIME;
        /// Percentage of servers left out beyond which no further one is.
        ///
        /// From 0 to 100 percent. 50 by default, so that a failing half is left out. A50's and
        /// Envoy's 10 would eject one of a handful; they need that for want of the rule that
        /// ejected endpoints are the last resort.
        max_ejection_percent, with_max_ejection_percent: u32 as Plain = 50, Start,
            0..=100, A_PERCENTAGE;
    } gone {
        by_percentage: "`threshold = \"off\"` switches it off";
    }
}

impl OutlierDetection {
    /// Rules that eject nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self::DEFAULTS.with_consecutive_failures(0).with_threshold(None)
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }

    /// Returns true if any rule can eject.
    pub(super) fn is_on(&self) -> bool {
        self.consecutive_failures > 0 || self.threshold.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        let rules = OutlierDetection::default();
        let table = [
            (
                BalanceConfig::default().with_connections(0),
                "balance.connections is 0: from 1 to 64, since each has buffers of its own",
            ),
            (
                BalanceConfig::default().with_latency_decay(Duration::ZERO),
                "balance.latency_decay is 0ns: from 1 ms to 365 days",
            ),
            (
                BalanceConfig::default().with_slow_start(Duration::MAX),
                "balance.slow_start is 18446744073709551615",
            ),
            (
                BalanceConfig::default()
                    .with_outlier_detection(rules.with_max_ejection_percent(101)),
                "balance.outlier_detection.max_ejection_percent is 101: from 0 to 100",
            ),
            (
                BalanceConfig::default()
                    .with_outlier_detection(rules.with_interval(Duration::ZERO)),
                "balance.outlier_detection.interval is 0ns: from 1 ms",
            ),
            (
                BalanceConfig::default().with_outlier_detection(rules.with_threshold(Some(200))),
                "balance.outlier_detection.threshold is 200: from 0 to 100",
            ),
        ];
        for (config, message) in table {
            let error = config.check().expect_err("a value is out of range").to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(BalanceConfig::default().check(), Ok(()));
        assert_eq!(OutlierDetection::off().check(), Ok(()));
        assert!(!OutlierDetection::off().is_on());
    }
    #[test]
    fn each_setter_sets_its_own_value_and_leaves_the_others() {
        let seconds = Duration::from_secs;
        let rules = OutlierDetection::default()
            .with_consecutive_failures(4)
            .with_threshold(Some(1))
            .with_minimum_hosts(2)
            .with_request_volume(3)
            .with_interval(seconds(5))
            .with_base_ejection_time(seconds(6))
            .with_max_ejection_time(seconds(7))
            .with_max_ejection_percent(8);
        let expected = OutlierDetection {
            consecutive_failures: 4,
            threshold: Some(1),
            minimum_hosts: 2,
            request_volume: 3,
            interval: seconds(5),
            base_ejection_time: seconds(6),
            max_ejection_time: seconds(7),
            max_ejection_percent: 8,
        };
        assert_eq!(rules, expected);
        let config = BalanceConfig::default()
            .with_policy(Policy::RoundRobin)
            .with_outlier_detection(rules)
            .with_slow_start(seconds(9))
            .with_prefer_upgraded(true)
            .with_latency_decay(seconds(10))
            .with_connections(11)
            .with_health_check("service".to_owned());
        let expected = BalanceConfig {
            policy: Policy::RoundRobin,
            outlier_detection: expected,
            slow_start: Some(seconds(9)),
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
        assert!(off.with_threshold(Some(85)).is_on());
        assert!(OutlierDetection::default().is_on());
    }

    #[test]
    fn the_ends_of_the_ranges_are_in_them() {
        let rules =
            OutlierDetection::default().with_max_ejection_percent(100).with_threshold(Some(100));
        for connections in [1, MAX_CONNECTIONS] {
            let config = BalanceConfig::default()
                .with_connections(connections)
                .with_outlier_detection(rules);
            assert_eq!(config.check(), Ok(()));
        }
    }
}
