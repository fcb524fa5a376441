//! Prometheus against the files of `deploy/prometheus`, and against a program that it scrapes.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use farcall_testkit::process::{Process, bounded};

use super::{FOLDER, LIMIT};
use crate::rdma_programs::{RdmaProgram, Target};

/// Questions of an operator, each with its query.
pub(super) const QUERIES: [(&str, &str); 3] = [
    ("calls/s", "sum by (grpc_method) (rate(grpc_server_call_started_total[15s]))"),
    (
        "p99 by method",
        "histogram_quantile(0.99, sum by (le, grpc_method) \
         (rate(grpc_server_call_duration_seconds_bucket[15s])))",
    ),
    (
        "share of connections on RDMA",
        "(sum(farcall_server_connections{transport=\"rdma\"}) or vector(0)) \
         / sum(farcall_server_connections)",
    ),
];

/// A query that has an answer once the ranges of [`QUERIES`] are full of scrapes. Rates are too low
/// before.
const SETTLED: &str = "sum_over_time(up{job=\"farcall\"}[15s]) > 10";

/// The program that is scraped. The test is one of its package.
const SERVER: RdmaProgram = RdmaProgram {
    package: "farcall-examples",
    target: Target::Bin { name: "metrics", test: "hello" },
    arguments: &[],
    limit_seconds: 120,
};

/// The program that calls it.
const CLIENT: RdmaProgram = RdmaProgram {
    package: "farcall-cli",
    target: Target::Bin { name: "farcall", test: "command" },
    arguments: &[],
    limit_seconds: 120,
};

const CONFIG: &str = "prometheus.yaml";

const START_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time until all queries have an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Checks the configuration, the alerts, and the alerts' own tests.
///
/// # Errors
///
/// Returns an error if `promtool` refuses one of them.
pub(super) fn check_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    copy_files(folder.path(), "orders-1:9464")?;
    for (arguments, name) in [
        (["check", "config"], CONFIG),
        (["check", "rules"], "alerts.yaml"),
        (["test", "rules"], "alerts.test.yaml"),
    ] {
        bounded::run(Command::new("promtool").args(arguments).arg(folder.path().join(name)), LIMIT)
            .with_context(|| format!("promtool {}", arguments.join(" ")))?;
    }
    Ok(())
}

/// Copies the files of Prometheus, with `target` as the only program to scrape.
fn copy_files(folder: &Path, target: &str) -> Result<()> {
    for entry in fs::read_dir(Path::new(FOLDER).join("prometheus"))? {
        let path = entry?.path();
        fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))?;
    }
    let config = folder.join(CONFIG);
    let text = configured(&fs::read_to_string(&config)?, target)?;
    Ok(fs::write(&config, text)?)
}

/// Lets Prometheus scrape an example while it is called, and prints the answers to [`QUERIES`].
///
/// # Errors
///
/// Returns an error if a program cannot be built or started, or a query has no answer in time.
pub(super) fn scrape() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut server = Command::new(built(&SERVER)?);
    let server = server.args(["auto://127.0.0.1:0", "127.0.0.1:0"]);
    let mut server = Process::start("example", server)?;
    let mut next = |prefix: &str| {
        let line = server.line(START_LIMIT)?;
        let rest = line.strip_prefix(prefix).with_context(|| format!("not `{prefix}`: {line}"))?;
        anyhow::Ok(rest.to_owned())
    };
    let (address, page) = (next("serving ")?, next("metrics at http://")?);
    let target = page.strip_suffix("/metrics").context("not the page of metrics")?;

    copy_files(folder.path(), target)?;
    let mut caller = Process::start("bench", &mut caller(&address)?)?;
    let url = format!("http://{}", free_address()?);
    let _prometheus = Process::start("Prometheus", &mut prometheus(folder.path(), &url))?;
    let end = Instant::now() + ANSWER_LIMIT;
    let mut answers = |query: &str| loop {
        let mut ask = Command::new("promtool");
        let ask = ask.args(["query", "instant", &url, query]).stderr(Stdio::null());
        let answers = bounded::output(ask, LIMIT).map(|text| parse(&text)).unwrap_or_default();
        if is_answer(&answers) {
            return Ok(answers);
        }
        ensure!(caller.wait(Duration::ZERO).is_err(), "the calls have ended");
        ensure!(Instant::now() < end, "Prometheus has no answer to `{query}`: {answers:?}");
        std::thread::sleep(LOOK_INTERVAL);
    };
    answers(SETTLED)?;
    println!("Prometheus scraped {target}:");
    for (question, query) in QUERIES {
        println!("  {question}: {query}");
        for (labels, value) in answers(query)? {
            println!("    {labels} {value}");
        }
    }
    Ok(())
}

/// Returns the path of a program, built as tests are.
fn built(program: &RdmaProgram) -> Result<PathBuf> {
    let jobs = program.build(&Default::default())?;
    Ok(jobs.into_iter().next().context("the build produced no program")?.program)
}

/// Returns the command that calls the server 200 times a second.
fn caller(address: &str) -> Result<Command> {
    let mut caller = Command::new(built(&CLIENT)?);
    caller.args(["bench", address, "hello.Greeter/SayHello", "-d", r#"{"name": "Prometheus"}"#]);
    caller.args(["--proto", "hello.proto", "--import-path", "proto"]);
    caller.args(["-c", "4", "--rate", "200", "-z", "120s"]);
    Ok(caller)
}

fn prometheus(folder: &Path, url: &str) -> Command {
    let mut prometheus = Command::new("prometheus");
    let listen = url.trim_start_matches("http://");
    prometheus.arg(format!("--config.file={}", folder.join(CONFIG).display()));
    prometheus.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    prometheus.arg(format!("--web.listen-address={listen}")).arg("--log.level=error");
    prometheus
}

/// Returns an address that nothing listens at.
fn free_address() -> Result<std::net::SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns the configuration with `target` in place of its hosts, scraped each second, and without
/// the pods: these need a cluster, and Debian's Prometheus has no support of Kubernetes.
fn configured(text: &str, target: &str) -> Result<String> {
    let (hosts, _) = text.split_once("  # Pods with ").context("no job of pods")?;
    let mut config = hosts.replace("15s", "1s");
    let named = r#"["orders-1:9464", "orders-2:9464"]"#;
    if !config.contains(named) {
        bail!("the configuration does not name {named}");
    }
    config = config.replace(named, &format!(r#"["{target}"]"#));
    Ok(config)
}

/// Reads lines such as `{grpc_method="a"} => 0.5 @[1700000000]`.
fn parse(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        let (labels, rest) = line.split_once(" => ")?;
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some((labels.to_owned(), value))
    };
    text.lines().filter_map(line).collect()
}

/// Returns true if there is an answer, and none stands for a quotient of nothing.
fn is_answer(answers: &[(String, f64)]) -> bool {
    !answers.is_empty() && answers.iter().all(|(_, value)| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_line_by_line() {
        let text = "{grpc_method=\"a.B/C\"} => 0.0049 @[1700000000.123]\n{} => NaN @[1]\nno\n";
        let answers = parse(text);
        assert_eq!(answers[0], ("{grpc_method=\"a.B/C\"}".to_owned(), 0.0049));
        assert!(is_answer(&answers[..1]) && !is_answer(&answers) && !is_answer(&[]));
    }

    #[test]
    fn configuration_has_one_target_and_no_cluster() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prometheus/prometheus.yaml");
        let config = configured(&fs::read_to_string(path).unwrap(), "127.0.0.1:9").unwrap();
        assert!(config.contains("- targets: [\"127.0.0.1:9\"]"), "{config}");
        assert!(!config.contains("kubernetes") && config.contains("scrape_interval: 1s"));
        assert!(configured("scrape_configs:\n  # Pods with a", "a:1").is_err());
    }
}
