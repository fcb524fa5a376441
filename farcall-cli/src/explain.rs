//! `farcall explain`: where the time of a unary call goes, its protocol, copies and attempts.

use std::collections::BTreeMap;
use std::time::Duration;

use farcall::{
    CallExplanation, CallStage, Channel, Explain, ExplainedFrame, MethodDescriptor, Status, client,
};
use hdrhistogram::Histogram;
use prost_reflect::MessageDescriptor;
use serde::Serialize;

use crate::args::{ExplainArgs, Global};
use crate::failure::{Failure, code_name};
use crate::method::{self, Raw};
use crate::output::{self, Output, count};
use crate::{requests, schema};

/// The output of `--format json`.
#[derive(Debug, Serialize)]
struct Report {
    target: String,
    method: String,
    calls: u32,
    failures: u32,
    transport: Option<&'static str>,
    reason: Option<String>,
    endpoint: Option<String>,
    picked: Option<PickReport>,
    request: Option<FrameReport>,
    response: Option<FrameReport>,
    copied_bytes: Option<u64>,
    /// Attempts of all calls together.
    attempts: u64,
    /// Attempts of the last call that failed.
    failed_attempts: Vec<FailedReport>,
    total: TimeReport,
    stages: Vec<TimeReport>,
}

/// The choice of an endpoint.
#[derive(Debug, Serialize)]
struct PickReport {
    policy: &'static str,
    endpoints: usize,
    in_flight: u32,
}

/// A frame of the last call.
#[derive(Debug, Serialize)]
struct FrameReport {
    protocol: &'static str,
    bytes: u64,
    small_bytes_max: u64,
}

/// A failed attempt.
#[derive(Debug, Serialize)]
struct FailedReport {
    code: String,
    message: String,
}

/// The times of a stage.
#[derive(Debug, Serialize)]
struct TimeReport {
    stage: &'static str,
    p50_us: f64,
    p99_us: f64,
    /// Share of the time of all calls, from 0 to 1.
    share: f64,
}

/// The times of a stage in all calls.
#[derive(Debug)]
struct Times {
    histogram: Histogram<u64>,
    sum: Duration,
}

/// The accounts of all calls.
#[derive(Debug)]
struct Accounts {
    total: Times,
    stages: BTreeMap<CallStage, Times>,
    attempts: u64,
    failures: u32,
    last: CallExplanation,
}

pub(crate) async fn run(
    global: &Global,
    args: &ExplainArgs,
    output: &Output,
) -> Result<(), Failure> {
    let (channel, described) = schema::called_unary("explain", global, &args.call).await?;
    let method = method::from_schema(&described);
    let (accounts, failure) = measure(global, args, (&channel, method), described.input()).await?;
    if output.is_json() {
        output.value(&Report::new(args, &accounts))?;
    } else {
        lines(args, &accounts).iter().try_for_each(|line| output.line(line))?;
    }
    failure.map_or(Ok(()), |status| Err(Failure::call(&status)))
}

/// Makes the calls. Returns their accounts, and the status of the last call that failed.
async fn measure(
    global: &Global,
    args: &ExplainArgs,
    (channel, method): (&Channel, &'static MethodDescriptor),
    input: MessageDescriptor,
) -> Result<(Accounts, Option<Status>), Failure> {
    let message = requests::one(&args.call, input)?;
    let (mut accounts, mut failure) = (Accounts::new()?, None);
    for _ in 0..args.repeat {
        let explain = Explain::new();
        let mut request = global.request(message.clone());
        request.extensions_mut().insert(explain.clone());
        if let Err(status) = client::unary::<_, Raw>(channel, method, request).await {
            accounts.failures += 1;
            failure = Some(status);
        }
        accounts.add(explain.explanation())?;
    }
    Ok((accounts, failure))
}

impl Times {
    fn new() -> Result<Self, Failure> {
        // Three digits, up to an hour.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        let histogram = histogram.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self { histogram, sum: Duration::ZERO })
    }

    fn add(&mut self, time: Duration) {
        self.histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.sum += time;
    }

    fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(quantile))
    }

    fn share(&self, total: &Self) -> f64 {
        if total.sum.is_zero() { 0.0 } else { self.sum.as_secs_f64() / total.sum.as_secs_f64() }
    }

    fn report(&self, stage: &'static str, total: &Self) -> TimeReport {
        let micros = |quantile| self.quantile(quantile).as_secs_f64() * 1e6;
        TimeReport { stage, p50_us: micros(0.5), p99_us: micros(0.99), share: self.share(total) }
    }
}

impl Accounts {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            total: Times::new()?,
            stages: BTreeMap::new(),
            attempts: 0,
            failures: 0,
            last: CallExplanation::default(),
        })
    }

    fn add(&mut self, explained: CallExplanation) -> Result<(), Failure> {
        self.total.add(explained.total);
        self.attempts += u64::from(explained.attempts);
        for (stage, time) in &explained.stages {
            if !self.stages.contains_key(stage) {
                self.stages.insert(*stage, Times::new()?);
            }
            if let Some(times) = self.stages.get_mut(stage) {
                times.add(*time);
            }
        }
        self.last = explained;
        Ok(())
    }
}

impl Report {
    fn new(args: &ExplainArgs, accounts: &Accounts) -> Self {
        let last = &accounts.last;
        let frame = |frame: &ExplainedFrame| FrameReport {
            protocol: frame.protocol_name(),
            bytes: frame.len,
            small_bytes_max: frame.protocol.small_len_max,
        };
        let failed = last.failed.iter().map(|(code, message)| {
            let (code, message) = (code_name(*code), message.clone());
            FailedReport { code, message }
        });
        let stages = accounts.stages.iter();
        Self {
            target: args.call.target.clone(),
            method: args.call.method.clone(),
            calls: args.repeat,
            failures: accounts.failures,
            transport: last.connection.as_ref().map(|info| info.transport),
            reason: reason(last),
            endpoint: last.endpoint.clone(),
            picked: last.pick.map(|pick| PickReport {
                policy: pick.policy,
                endpoints: pick.candidates,
                in_flight: pick.in_flight,
            }),
            request: last.request.as_ref().map(frame),
            response: last.reply.as_ref().map(frame),
            copied_bytes: last.copied_bytes,
            attempts: accounts.attempts,
            failed_attempts: failed.collect(),
            total: accounts.total.report("total", &accounts.total),
            stages: stages.map(|(stage, it)| it.report(stage.name(), &accounts.total)).collect(),
        }
    }
}

/// Returns the facts about a call besides its times, each with its name.
pub(crate) fn facts(explained: &CallExplanation) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let transport = explained.connection.as_ref().map_or("no connection", |info| info.transport);
    let reason = reason(explained).map_or_else(String::new, |reason| format!("  ({reason})"));
    facts.push(("path", format!("{transport}{reason}")));
    if let Some(endpoint) = &explained.endpoint {
        let pick = explained.pick.map_or_else(String::new, |pick| {
            let (policy, of, in_flight) = (pick.policy, pick.candidates, pick.in_flight);
            format!("  ({policy} picked it of {of}, {in_flight} in flight)")
        });
        facts.push(("endpoint", format!("{endpoint}{pick}")));
    }
    for (name, frame) in [("request", explained.request), ("response", explained.reply)] {
        if let Some(frame) = frame {
            facts.push((name, describe_frame(&frame)));
        }
    }
    if let Some(bytes) = explained.copied_bytes {
        facts.push(("copied", format!("{} bytes on this side", count(bytes))));
    }
    let failed = explained
        .failed
        .iter()
        .map(|(code, message)| format!("; failed: {} {message}", code_name(*code)));
    let failed: String = failed.collect();
    facts.push(("attempts", format!("{}{failed}", explained.attempts)));
    facts
}

/// Returns a frame's protocol, and why it has that one.
fn describe_frame(frame: &ExplainedFrame) -> String {
    let (len, max) = (count(frame.len), frame.protocol.small_len_max);
    let why = match (frame.is_large, max) {
        (_, u64::MAX) => String::new(),
        (true, max) => format!(": more than {}", count(max)),
        (false, max) => format!(": at most {}", count(max)),
    };
    format!("{} of {len} bytes{why}", frame.protocol_name())
}

/// Returns why the call took its path, where a connection says.
fn reason(explained: &CallExplanation) -> Option<String> {
    let info = explained.connection.as_ref()?;
    match (&info.fallback, info.is_upgraded) {
        (Some(fallback), _) => Some(fallback.clone()),
        (None, true) => Some("both sides offered RDMA".to_owned()),
        (None, false) => None,
    }
}

/// Returns the table for people.
fn lines(args: &ExplainArgs, accounts: &Accounts) -> Vec<String> {
    let facts = facts(&accounts.last);
    let mut lines: Vec<_> = facts.iter().map(|(name, fact)| format!("{name:<17} {fact}")).collect();
    if args.repeat > 1 {
        let (attempts, failures) = (count(accounts.attempts), accounts.failures);
        let calls = count(args.repeat.into());
        lines.push(format!("{:<17} {calls}, attempts {attempts}, failures {failures}", "calls"));
    }
    let is_one = args.repeat == 1;
    let heads = if is_one { ("time", "") } else { ("p50", "p99") };
    lines.push(format!("{:<17} {:>10} {:>10} {:>7}", "stage", heads.0, heads.1, "share"));
    let total = &accounts.total;
    let stages = accounts.stages.iter().map(|(stage, times)| (stage.name(), times));
    for (name, times) in stages.chain([("total", total)]) {
        let p50 = output::duration(times.quantile(0.5));
        let p99 = if is_one { String::new() } else { output::duration(times.quantile(0.99)) };
        let share = times.share(total) * 100.0;
        lines.push(format!("{name:<17} {p50:>10} {p99:>10} {share:>5.1} %"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use farcall::sim::SimNetwork;
    use farcall::{Rdma, RdmaConfig, Server};
    use farcall_probe::Probe;
    use farcall_probe::proto::probe_rpc::ProbeService;

    use super::*;
    use crate::args::{Cli, Command};

    /// Runs a line against the probe's service over a simulated device.
    async fn explain(line: &[&str]) -> String {
        let network = SimNetwork::new(1);
        network.add_device("sim0", &["127.0.0.1".parse().unwrap()]);
        let rdma = Rdma::simulated(&network, RdmaConfig::default());
        let builder = Server::builder().add_service(ProbeService::new(Probe::new().0));
        let listener = builder.rdma(&rdma).bind("rdma://127.0.0.1:0").await.unwrap();
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        let channel = Channel::builder(&address).unwrap().rdma(&rdma).connect().await.unwrap();
        let cli = Cli::parse_from([&["farcall", "explain", &address][..], line].concat());
        let Command::Explain(args) = &cli.command else { panic!("{cli:?}") };
        let set = farcall_probe::DESCRIPTOR_SET;
        let pool = prost_reflect::DescriptorPool::decode(set).unwrap();
        let described = schema::method(&pool, &args.call.method).unwrap();
        let method = method::from_schema(&described);
        let measured = measure(&cli.global, args, (&channel, method), described.input()).await;
        let (accounts, failure) = measured.unwrap();
        assert!(failure.is_none(), "{failure:?}");
        serving.abort();
        let text = lines(args, &accounts).join("\n").replace(&address, "rdma://ADDRESS");
        // Shown with `--nocapture`.
        println!("{text}\n");
        text
    }

    #[tokio::test]
    async fn small_and_large_calls_over_rdma_differ_by_protocol() {
        let text = explain(&["farcall.suite.Probe/Echo", "-d", r#"{"payload":"YQ=="}"#]).await;
        let has = |part: &str| assert!(text.contains(part), "{part}: {text}");
        has(
            "path              rdma  (both sides offered RDMA)\nendpoint          rdma://ADDRESS\n",
        );
        has("request           SEND of ");
        has("\nattempts          1\n");
        has("\ncredit ");
        let produce =
            ["farcall.suite.Probe/Produce", "-d", r#"{"len":"1000000"}"#, "--repeat", "5"];
        let text = explain(&produce).await;
        let has = |part: &str| assert!(text.contains(part), "{part}: {text}");
        has("response          READ of 1,000,");
        has(" bytes: more than ");
        has("\ntransfer ");
        has("\ncalls             5, attempts 5, failures 0\nstage                    p50");
    }
}
