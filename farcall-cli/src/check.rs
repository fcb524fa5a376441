//! `farcall check`: path and latency, by the convention of monitoring plugins.

use std::fmt::Write as _;
use std::time::Duration;

use farcall::Code;
use serde::Serialize;

use crate::args::{CheckArgs, Global, Metric, Threshold};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::ping::{self, Pings, ServerReport};
use crate::target::{self, Connected};

/// The verdict of a check, by its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

/// The measurements of a check.
struct Measured {
    connect: Duration,
    pings: Pings,
    servers: Vec<ServerReport>,
}

/// The output of `--format json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    verdict: Verdict,
    message: &'a str,
    latency_us: serde_json::Map<String, serde_json::Value>,
    servers: &'a [ServerReport],
}

pub(crate) async fn run(global: &Global, args: &CheckArgs, output: &Output) -> Result<u8, Failure> {
    let measured = match measure(global, args).await {
        Ok(measured) => measured,
        Err(failure) => return failed(&failure, args, output),
    };
    let (verdict, message) = judge(&measured, args);
    if output.is_json() {
        let latency_us = METRICS.map(|metric| {
            let micros = measured.latency(metric).as_secs_f64() * 1e6;
            (metric.name().to_owned(), micros.into())
        });
        output.value(&Report {
            verdict,
            message: &message,
            latency_us: latency_us.into_iter().collect(),
            servers: &measured.servers,
        })?;
    } else {
        let line = verdict.line(args, &message);
        output.line(&format!("{line} | {}", performance_data(&measured, args)))?;
    }
    Ok(verdict as u8)
}

async fn measure(global: &Global, args: &CheckArgs) -> Result<Measured, Failure> {
    let Connected { channel, took } = target::connect(global, &args.target).await?;
    let servers = target::settled(&channel, target::connect_limit(global)).await;
    let pings = ping::measure(global, &channel, &args.target, args.count).await?;
    let servers = servers.iter().map(ServerReport::new).collect();
    Ok(Measured { connect: took, pings, servers })
}

/// Reports a check that measured nothing.
fn failed(failure: &Failure, args: &CheckArgs, output: &Output) -> Result<u8, Failure> {
    let is_down = failure.is_connection()
        || matches!(failure.code(), Some(Code::Unavailable | Code::DeadlineExceeded));
    let verdict = if is_down { Verdict::Critical } else { Verdict::Unknown };
    let message = failure.message();
    if output.is_json() {
        let latency_us = serde_json::Map::new();
        output.value(&Report { verdict, message, latency_us, servers: &[] })?;
    } else {
        output.line(&verdict.line(args, message))?;
    }
    Ok(verdict as u8)
}

/// Returns the worst verdict, and the reasons for it; for OK, the state.
fn judge(measured: &Measured, args: &CheckArgs) -> (Verdict, String) {
    let mut faults = Vec::new();
    let count = measured.servers.len();
    let listed = |some: &[&ServerReport], state: &str| {
        let names: Vec<_> =
            some.iter().map(|it| format!("{}: {}", it.address, it.reason)).collect();
        format!("{} of {count} servers {state} ({})", some.len(), names.join("; "))
    };
    let down: Vec<_> = measured.servers.iter().filter(|it| it.transport.is_none()).collect();
    if !down.is_empty() {
        faults.push((Verdict::Warning, listed(&down, "down")));
    }
    if let Some(path) = args.require.as_deref() {
        let is_other = |it: &&ServerReport| it.transport.is_some_and(|it| it != path);
        let others: Vec<_> = measured.servers.iter().filter(is_other).collect();
        if !others.is_empty() {
            faults.push((Verdict::Critical, listed(&others, &format!("not on {path}"))));
        }
    }
    if let Some(health @ "NOT_SERVING") = measured.pings.health {
        faults.push((Verdict::Critical, format!("health {health}")));
    }
    for (verdict, thresholds) in [(Verdict::Critical, &args.crit), (Verdict::Warning, &args.warn)] {
        let is_exceeded = |it: &&Threshold| measured.latency(it.metric) > it.limit;
        faults.extend(thresholds.iter().filter(is_exceeded).map(|Threshold { metric, limit }| {
            let latency = output::duration(measured.latency(*metric));
            let text = format!("{} {latency} over {}", metric.name(), output::duration(*limit));
            (verdict, text)
        }));
    }
    let Some(&(verdict, _)) = faults.iter().max_by_key(|(verdict, _)| *verdict) else {
        let p99 = output::duration(measured.latency(Metric::P99));
        let paths = paths(measured);
        let paths: Vec<_> =
            paths.iter().map(|(path, count)| format!("{count} on {path}")).collect();
        return (Verdict::Ok, format!("{}, p99 {p99}", paths.join(", ")));
    };
    faults.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let texts: Vec<_> = faults.into_iter().map(|(_, text)| text).collect();
    (verdict, texts.join(", "))
}

/// Returns how many servers are on each path.
fn paths(measured: &Measured) -> std::collections::BTreeMap<&'static str, usize> {
    let mut paths = std::collections::BTreeMap::new();
    for path in measured.servers.iter().filter_map(|server| server.transport) {
        *paths.entry(path).or_default() += 1;
    }
    paths
}

const METRICS: [Metric; 5] = [Metric::Connect, Metric::Min, Metric::P50, Metric::P99, Metric::Max];

/// Returns latencies in microseconds with their thresholds, and counts of servers.
fn performance_data(measured: &Measured, args: &CheckArgs) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let limit = |thresholds: &[Threshold]| {
            let limit = thresholds.iter().find(|it| it.metric == metric).map(|it| it.limit);
            limit.map_or_else(String::new, |limit| limit.as_micros().to_string())
        };
        let (warn, crit) = (limit(&args.warn), limit(&args.crit));
        let micros = measured.latency(metric).as_micros();
        let _ = write!(text, "{}={micros}us", metric.name());
        if !warn.is_empty() || !crit.is_empty() {
            let _ = write!(text, ";{warn};{crit}");
        }
        text.push(' ');
    }
    let _ = write!(text, "servers={}", measured.servers.len());
    for (path, count) in paths(measured) {
        let _ = write!(text, " {path}={count}");
    }
    text
}

impl Measured {
    fn latency(&self, metric: Metric) -> Duration {
        match metric {
            Metric::Connect => self.connect,
            Metric::Min => self.pings.quantile(0.0),
            Metric::P50 => self.pings.quantile(0.5),
            Metric::P99 => self.pings.quantile(0.99),
            Metric::Max => self.pings.quantile(1.0),
        }
    }
}

impl Verdict {
    /// Returns the line of a plugin. A bar in it would begin the performance data.
    fn line(self, args: &CheckArgs, message: &str) -> String {
        let name = args.target.trim_start_matches('@');
        let verdict = format!("{self:?}").to_uppercase();
        format!("{verdict} {name}: {message}").replace('|', "/")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use hdrhistogram::Histogram;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::ping::Probe;

    fn server(address: &str, transport: Option<&'static str>, reason: &str) -> ServerReport {
        ServerReport { address: address.into(), state: "ready", transport, reason: reason.into() }
    }

    /// Judges three servers and round trips of 310 us.
    fn judged(flags: &str, health: &'static str, last: ServerReport) -> (Verdict, String) {
        let line = format!("farcall check @inventory {flags}");
        let Command::Check(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("it is a check")
        };
        let mut times = Histogram::new(3).unwrap();
        times.record(310_000).unwrap();
        let pings = Pings { probe: Probe::Health, health: Some(health), times };
        let rdma = |address| server(address, Some("rdma"), "both sides offered RDMA");
        let servers = vec![rdma("10.0.0.1"), rdma("10.0.0.2"), last];
        judge(&Measured { connect: Duration::from_millis(2), pings, servers }, &args)
    }

    #[test]
    fn worst_finding_is_the_verdict_and_all_are_named() {
        let tcp = || server("10.0.0.3", Some("tcp"), "rdma: server: there is no RDMA device");
        let (verdict, text) = judged("--require rdma --warn p99=300us", "SERVING", tcp());
        assert_eq!(verdict, Verdict::Critical);
        let expected = "1 of 3 servers not on rdma (10.0.0.3: rdma: server: there is no RDMA \
                        device), p99 310.0 us over 300.0 us";
        assert_eq!(text, expected);
        assert_eq!(judged("--warn p99=300us", "SERVING", tcp()).0, Verdict::Warning);
        assert_eq!(judged("--crit connect=1ms", "SERVING", tcp()).0, Verdict::Critical);
        assert_eq!(judged("", "NOT_SERVING", tcp()).0, Verdict::Critical);
        let (verdict, text) = judged("--crit p99=1ms", "SERVING", tcp());
        assert_eq!((verdict, text.as_str()), (Verdict::Ok, "2 on rdma, 1 on tcp, p99 310.0 us"));
        let (verdict, text) =
            judged("--require rdma", "SERVING", server("10.0.0.3", None, "refused"));
        assert_eq!(
            (verdict, text.as_str()),
            (Verdict::Warning, "1 of 3 servers down (10.0.0.3: refused)")
        );
    }
}
