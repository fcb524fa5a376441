//! How a target's calls are shared among its servers: keys and what the builder takes.

use rpc_core::InvalidSetting;

use super::checks::period;
use super::invalid::set;
use super::table::table;
use super::value::{BalancePolicy, Period, PeriodOrOff};
use crate::balance::{BalanceConfig, FailurePercentage, OutlierDetection, Policy, SlowStart};

const OUTLIERS: OutlierDetection = OutlierDetection::new();

/// A value that the rules of its table check.
fn rules(rules: OutlierDetection) -> Result<(), InvalidSetting> {
    rules.check()
}

table! {
    /// When a server that fails is left out.
    OutlierDetectionTable {
        /// Failures in a row after which it is left out at once; 0 switches that off.
        consecutive_failures: u32 = "5", AtStart,
            |it| rules(OUTLIERS.with_consecutive_failures(*it));
        /// Whether its share of failures counts, too.
        by_percentage: bool = "true", AtStart, |_| Ok(());
        /// The percentage of failures in an interval that is too much.
        threshold: u32 = "85", AtStart, |it| {
            let share = FailurePercentage::new().with_threshold(*it);
            rules(OUTLIERS.with_failure_percentage(Some(share)))
        };
        /// Shares count only if so many servers have had enough calls.
        minimum_hosts: u32 = "5", AtStart, |_| Ok(());
        /// Calls in an interval that are enough.
        request_volume: u32 = "50", AtStart, |_| Ok(());
        /// How often shares are looked at, and servers may return.
        interval: Period = "\"10s\"", AtStart, |it| rules(OUTLIERS.with_interval(it.0));
        /// How long a server is left out the first time; each time in a row adds as much.
        base_ejection_time: Period = "\"30s\"", AtStart,
            |it| rules(OUTLIERS.with_base_ejection_time(it.0));
        /// How long at most.
        max_ejection_time: Period = "\"300s\"", AtStart,
            |it| rules(OUTLIERS.with_max_ejection_time(it.0));
        /// While a greater percentage of the servers is left out, no further one is.
        max_ejection_percent: u32 = "50", AtStart,
            |it| rules(OUTLIERS.with_max_ejection_percent(*it));
    } tables {}
}

table! {
    /// How calls are shared among servers, where the address names several.
    BalanceTable {
        /// "least_loaded" of two, "round_robin", "pick_first", or "consistent_hash" by a key.
        policy: BalancePolicy = "\"least_loaded\"", AtStart, |_| Ok(());
        /// Whether servers over RDMA are preferred to those over TCP.
        prefer_upgraded: bool = "false", AtStart, |_| Ok(());
        /// After how long a measured latency or failure counts e times less.
        latency_decay: Period = "\"10s\"", AtStart,
            |it| BalanceConfig::new().with_latency_decay(it.0).check();
        /// How many connections the channel makes to each server. From 1 to 64.
        connections: u16 = "1", AtStart, |it| BalanceConfig::new().with_connections(*it).check();
        /// The service whose health is asked of each server, by gRPC's health service: its name, ""
        /// for the whole server, or "off".
        health_check: String = "\"off\"", AtStart, |_| Ok(());
        /// How long a server that has just come takes to have its whole share.
        slow_start: PeriodOrOff = "\"off\"", AtStart, |it| it.0.map_or(Ok(()), period);
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
            self.interval.map(|it| it.0) => with_interval;
            self.base_ejection_time.map(|it| it.0) => with_base_ejection_time;
            self.max_ejection_time.map(|it| it.0) => with_max_ejection_time;
            self.max_ejection_percent => with_max_ejection_percent;
        }
        rules
    }
}

impl BalanceTable {
    pub(super) fn config(&self) -> Result<BalanceConfig, InvalidSetting> {
        let policy = self.policy.map(|it| match it.0 {
            "round_robin" => Policy::RoundRobin,
            "pick_first" => Policy::PickFirst,
            "consistent_hash" => Policy::ConsistentHash,
            _ => Policy::LeastLoaded,
        });
        let slow_start = self.slow_start.and_then(|it| it.0).map(SlowStart::new);
        let health_check = self.health_check.clone().filter(|it| it != "off");
        let config = BalanceConfig::new().with_outlier_detection(self.outlier_detection.rules());
        set! { config,
            policy => with_policy;
            self.prefer_upgraded => with_prefer_upgraded;
            self.latency_decay.map(|it| it.0) => with_latency_decay;
            self.connections => with_connections;
            health_check => with_health_check;
            slow_start => with_slow_start;
        }
        config.check().map(|()| config)
    }
}
