//! The report of a run.

use farcall::{Channel, Code};
use serde::Serialize;

use crate::args::CallArgs;
use crate::bench::load::Results;
use crate::failure::code_name;
use crate::output::{count, duration};
use crate::target;

/// Number of bars of the histogram.
const BARS: usize = 12;
/// Length of the longest bar, in characters.
const BAR_LEN: u64 = 40;

/// A run, as it is written to JSON and HTML.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) target: String,
    pub(crate) method: String,
    pub(crate) mode: &'static str,
    pub(crate) concurrency: u32,
    pub(crate) target_rate: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) calls: u64,
    pub(crate) calls_per_second: f64,
    pub(crate) errors: Vec<ErrorCount>,
    /// Calls without an end behind the run.
    pub(crate) unfinished: u64,
    pub(crate) latency: Vec<Quantile>,
    pub(crate) histogram: Vec<Bar>,
    /// Calls that ended in each sixtieth of the planned duration.
    pub(crate) intervals: Vec<u64>,
    pub(crate) paths: Vec<PathOfServer>,
    #[serde(skip)]
    common_failure: Option<Code>,
}

/// Failed calls of a code.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorCount {
    pub(crate) code: String,
    pub(crate) count: u64,
}

/// A latency that a share of the calls did not exceed.
#[derive(Debug, Serialize)]
pub(crate) struct Quantile {
    pub(crate) name: &'static str,
    pub(crate) share: f64,
    pub(crate) us: f64,
}

/// Calls with a latency in a range.
#[derive(Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) from_us: f64,
    pub(crate) to_us: f64,
    pub(crate) calls: u64,
}

/// The path to a server, behind the run.
#[derive(Debug, Serialize)]
pub(crate) struct PathOfServer {
    pub(crate) server: String,
    pub(crate) transport: Option<&'static str>,
    pub(crate) reason: String,
    /// Failures of RDMA while it was in use.
    pub(crate) failovers: u64,
}

const QUANTILES: [(&str, f64); 7] = [
    ("min", 0.0),
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

impl Report {
    pub(crate) fn new(args: &CallArgs, results: &Results, channel: &Channel) -> Self {
        let latencies = &results.latencies;
        let calls = latencies.len();
        let seconds = results.took.as_secs_f64();
        let quantile = |(name, share)| {
            let us = latencies.value_at_quantile(share) as f64 / 1e3;
            Quantile { name, share, us }
        };
        let errors = results
            .errors
            .iter()
            .map(|(&code, &count)| ErrorCount { code: code_name(Code::from(code)), count });
        let most = results.errors.iter().max_by_key(|(_, count)| **count);
        let failed: u64 = results.errors.values().sum();
        let common_failure = match most {
            Some((&code, _)) if failed == calls => Some(Code::from(code)),
            _ => None,
        };
        let paths = channel.endpoints().into_iter().map(|server| PathOfServer {
            server: server.endpoint.address.to_string(),
            transport: server.path.transport(),
            reason: target::reason(&server.path),
            failovers: server.failovers,
        });
        Self {
            target: args.target.clone(),
            method: args.method.clone(),
            mode: if results.plan.rate.is_some() { "open loop" } else { "closed loop" },
            concurrency: results.plan.concurrency,
            target_rate: results.plan.rate,
            seconds,
            calls,
            calls_per_second: calls as f64 / seconds.max(1e-9),
            errors: errors.collect(),
            unfinished: results.unfinished,
            latency: QUANTILES.map(quantile).into(),
            histogram: bars(results),
            intervals: results.intervals.clone(),
            paths: paths.collect(),
            common_failure,
        }
    }

    /// Returns the most frequent code if every call failed.
    pub(crate) fn common_failure(&self) -> Option<Code> {
        self.common_failure
    }

    /// Returns the lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let errors: u64 = self.errors.iter().map(|error| error.count).sum();
        let (calls, rate) = (count(self.calls), self.calls_per_second);
        let mut lines = vec![format!(
            "{}, {} in flight at most, {:.1} s",
            self.mode, self.concurrency, self.seconds
        )];
        if let Some(target) = self.target_rate {
            lines[0].push_str(&format!(", {target:.0}/s planned"));
        }
        lines.push(format!("  calls {calls}   errors {}   {rate:.0} calls/s", count(errors)));
        let latency = self.latency.iter().map(|it| format!("{} {}", it.name, micros(it.us)));
        lines.push(format!("  {}", latency.collect::<Vec<_>>().join("  ")));
        for ErrorCount { code, count } in &self.errors {
            lines.push(format!("  {code}: {count}"));
        }
        if self.unfinished > 0 {
            lines.push(format!("  unfinished: {}", count(self.unfinished)));
        }
        let most = self.histogram.iter().map(|bar| bar.calls).max().unwrap_or_default();
        for bar in &self.histogram {
            let len = usize::try_from(bar.calls * BAR_LEN / most.max(1)).unwrap_or_default();
            let upper = micros(bar.to_us);
            let line = format!("  <= {upper:>9}  {:<40} {}", "#".repeat(len), count(bar.calls));
            lines.push(line);
        }
        for path in &self.paths {
            let transport = path.transport.unwrap_or("no connection");
            let PathOfServer { server, reason, failovers, .. } = path;
            let line = format!("  {server} over {transport} ({reason}), failovers {failovers}");
            lines.push(line);
        }
        lines
    }
}

/// Returns the bars of the histogram: ranges of equal width on a logarithmic scale.
fn bars(results: &Results) -> Vec<Bar> {
    let latencies = &results.latencies;
    if latencies.is_empty() {
        return Vec::new();
    }
    let (min, max) = (latencies.min().max(1) as f64, latencies.max().max(2) as f64);
    let edge = |index: usize| min * (max / min).powf(index as f64 / BARS as f64) / 1e3;
    let mut bars: Vec<_> = (0..BARS)
        .map(|index| Bar { from_us: edge(index), to_us: edge(index + 1), calls: 0 })
        .collect();
    // Each recorded latency counts once: ranges of the histogram's own would overlap at the edges.
    for latency in latencies.iter_recorded() {
        let us = latency.value_iterated_to() as f64 / 1e3;
        let index = bars.iter().position(|bar| us <= bar.to_us).unwrap_or(BARS - 1);
        bars[index].calls += latency.count_at_value();
    }
    bars
}

/// Returns microseconds with the unit that fits them.
pub(crate) fn micros(us: f64) -> String {
    duration(std::time::Duration::from_secs_f64(us / 1e6))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::bench::load::{Load, Plan};

    proptest! {
        #[test]
        fn every_call_is_in_one_bar(nanos in prop::collection::vec(any::<u64>(), 0..100)) {
            let duration = Duration::from_secs(1);
            let plan = Plan { concurrency: 1, rate: None, duration, calls: None };
            let mut results = Load::new(plan).unwrap().finish();
            nanos.iter().for_each(|nanos| results.latencies.saturating_record(*nanos));
            let calls: u64 = bars(&results).iter().map(|bar| bar.calls).sum();
            prop_assert_eq!(calls, nanos.len() as u64);
        }
    }
}
