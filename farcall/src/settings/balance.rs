//! How a target's calls are shared among its servers: keys and what the builder takes.

use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::settings::{COMPUTED, Checked, PERIOD, define_overlay};

use super::invalid::set;
use crate::balance::{BalanceConfig, FailurePercentage, OutlierDetection, Policy, SlowStart};

const OUTLIERS: OutlierDetection = OutlierDetection::new();

/// A value that the rules of its table check.
fn rules(rules: OutlierDetection) -> Result<(), InvalidSetting> {
    rules.check()
}

define_overlay! {
    /// When a server that fails is left out.
    pub(super) OutlierDetectionTable {
        /// Failures in a row after which it is left out at once; 0 switches that off.
        consecutive_failures: u32 as Plain = "5", Start,
            Checked(|it: &u32| rules(OUTLIERS.with_consecutive_failures(*it))), "";
        /// Whether its share of failures counts, too.
        by_percentage: bool as Plain = "true", Start, .., "";
        /// The percentage of failures in an interval that is too much.
        threshold: u32 as Plain = "85", Start, Checked(|it: &u32| {
            let share = FailurePercentage::new().with_threshold(*it);
            rules(OUTLIERS.with_failure_percentage(Some(share)))
        }), "";
        /// Shares count only if so many servers have had enough calls.
        minimum_hosts: u32 as Plain = "5", Start, .., "";
        /// Calls in an interval that are enough.
        request_volume: u32 as Plain = "50", Start, .., "";
        /// How often shares are looked at, and servers may return.
        interval: Duration as Plain = "\"10s\"", Start,
            Checked(|it: &Duration| rules(OUTLIERS.with_interval(*it))), "";
        /// How long a server is left out the first time; each time in a row adds as much.
        base_ejection_time: Duration as Plain = "\"30s\"", Start,
            Checked(|it: &Duration| rules(OUTLIERS.with_base_ejection_time(*it))), "";
        /// How long at most.
        max_ejection_time: Duration as Plain = "\"300s\"", Start,
            Checked(|it: &Duration| rules(OUTLIERS.with_max_ejection_time(*it))), "";
        /// While a greater percentage of the servers is left out, no further one is.
        max_ejection_percent: u32 as Plain = "50", Start,
            Checked(|it: &u32| rules(OUTLIERS.with_max_ejection_percent(*it))), "";
    } tables {}
}

define_overlay! {
    /// How calls are shared among servers, where the address names several.
    pub(super) BalanceTable {
        /// "least_loaded" of two, "round_robin", "pick_first", or "consistent_hash" by a key.
        policy: Policy as Plain = "\"least_loaded\"", Start, .., "";
        /// Whether servers over RDMA are preferred to those over TCP.
        prefer_upgraded: bool as Plain = "false", Start, .., "";
        /// After how long a measured latency or failure counts e times less.
        latency_decay: Duration as Plain = "\"10s\"", Start,
            Checked(|it: &Duration| BalanceConfig::new().with_latency_decay(*it).check()), "";
        /// How many connections the channel makes to each server. From 1 to 64.
        connections: u16 as Plain = "1", Start,
            Checked(|it: &u16| BalanceConfig::new().with_connections(*it).check()), "";
        /// The service whose health is asked of each server, by gRPC's health service: its name, ""
        /// for the whole server, or "off".
        health_check: String as Plain = "\"off\"", Start, .., "";
        /// How long a server that has just come takes to have its whole share.
        slow_start: Option<Duration> as OrOff = "\"off\"", Start, PERIOD, COMPUTED;
    } tables {
        outlier_detection: OutlierDetectionTable = "outlier_detection", Live;
    }
}

impl OutlierDetectionTable {
    fn rules(&self) -> OutlierDetection {
        let share = FailurePercentage::new();
        set! { share,
            self.threshold => with_threshold;
            self.minimum_hosts => with_minimum_hosts;
            self.request_volume => with_request_volume;
        }
        let share = self.by_percentage.unwrap_or(true).then_some(share);
        let rules = OutlierDetection::new().with_failure_percentage(share);
        set! { rules,
            self.consecutive_failures => with_consecutive_failures;
            self.interval => with_interval;
            self.base_ejection_time => with_base_ejection_time;
            self.max_ejection_time => with_max_ejection_time;
            self.max_ejection_percent => with_max_ejection_percent;
        }
        rules
    }
}

impl BalanceTable {
    pub(super) fn config(&self) -> Result<BalanceConfig, InvalidSetting> {
        let slow_start = self.slow_start.flatten().map(SlowStart::new);
        let health_check = self.health_check.clone().filter(|it| it != "off");
        let config = BalanceConfig::new().with_outlier_detection(self.outlier_detection.rules());
        set! { config,
            self.policy => with_policy;
            self.prefer_upgraded => with_prefer_upgraded;
            self.latency_decay => with_latency_decay;
            self.connections => with_connections;
            health_check => with_health_check;
            slow_start => with_slow_start;
        }
        config.check().map(|()| config)
    }
}
