//! The long soak: `soak inproc`, `soak tcp`, `soak unix`, or `soak rdma --host ADDRESS`. With
//! `--seconds`, connections come and go for so long. What goes wrong is logged; `RUST_LOG` says how
//! much.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use farcall_rig::soak::{Churn, ChurnPlan, Plan, churn, soak};
use farcall_suite::{Failure, Harness, Path};
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Maximum memory at the end, as a multiple of that after half of the calls.
const GROWTH_MAX: f64 = 1.5;

/// Looks at what there is, over the time of connections that come and go.
const ROUNDS: u32 = 30;

/// Maximum delay of any task, on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum number of complaints to print.
const COMPLAINTS_MAX: usize = 20;

/// Timeout of a call, among 256 others on a slow device.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Parser)]
#[command(about = "Makes many calls at once, cancelled and timed out at random")]
struct Options {
    #[arg(value_enum)]
    transport: Transport,
    /// The address of an RDMA device.
    #[arg(long, default_value = "10.0.1.1")]
    host: String,
    /// Calls in all.
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// Calls at a time.
    #[arg(long, default_value_t = 256)]
    in_flight: usize,
    /// Instead of so many calls over one connection: many connections for so long.
    #[arg(long, conflicts_with_all = ["calls", "in_flight"])]
    seconds: Option<u64>,
    /// Seed of the calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    Inproc,
    Tcp,
    Unix,
    Rdma,
}

fn main() -> ExitCode {
    let default = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into());
    tracing_subscriber::fmt().with_env_filter(default.from_env_lossy()).init();
    match run(Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<bool, Failure> {
    let path = match options.transport {
        Transport::Inproc => Path::Inproc,
        Transport::Tcp => Path::Tcp,
        Transport::Unix => Path::Unix,
        Transport::Rdma => Path::Rdma { host: options.host },
    };
    let Options { calls, in_flight, seed, .. } = options;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(seconds) = options.seconds {
        let length = Duration::from_secs(seconds);
        return come_and_go(&runtime, path, ChurnPlan { length, rounds: ROUNDS, seed });
    }
    println!("{path}: {calls} calls, {in_flight} at a time, seed {seed}");
    let started = Instant::now();
    let harness = Harness::new(path, LIMIT);
    let report = runtime.block_on(soak(&harness, Plan { calls, in_flight, seed }))?;
    let (first, last) = (report.resident_first_kib, report.resident_last_kib);
    let growth = last as f64 / first as f64;
    print!("{}", report.tally);
    println!("  {} calls ended, none is left on either side", report.tally.total());
    println!("  memory {first} KiB after a half, {last} KiB at the end: {growth:.2} times");
    println!("  {:.1} s", started.elapsed().as_secs_f64());
    if growth > GROWTH_MAX {
        println!("FAILED: memory grew more than {GROWTH_MAX} times");
    }
    Ok(growth <= GROWTH_MAX)
}

fn come_and_go(runtime: &Runtime, path: Path, plan: ChurnPlan) -> Result<bool, Failure> {
    println!("{path}: connections come and go for {:?}, seed {}", plan.length, plan.seed);
    let started = Instant::now();
    let harness = Harness::new(path, LIMIT).with_patience(PATIENCE);
    let tell = |seen: &Churn| {
        let (seconds, calls) = (started.elapsed().as_secs(), seen.tally.total());
        let Some(look) = seen.looks.last() else { return };
        println!("  {seconds:>5} s {:>8} connections {calls:>9} calls {look}", seen.connections);
    };
    let seen = runtime.block_on(churn(&harness, plan, tell))?;
    print!("{}", seen.tally);
    let Churn { connections, abandoned, .. } = seen;
    println!("  {connections} connections, {abandoned} of them let go of amid their calls");
    let per_connection = seen.growth_kib() as f64 * 1024.0 / (connections as f64 / 3.0);
    println!(
        "  memory {:+} KiB in the last third: {per_connection:+.1} bytes a connection",
        seen.growth_kib()
    );
    let complaints = seen.complaints();
    complaints.iter().take(COMPLAINTS_MAX).for_each(|text| println!("FAILED: {text}"));
    if complaints.len() > COMPLAINTS_MAX {
        println!("FAILED in {} ways", complaints.len());
    }
    Ok(complaints.is_empty())
}
