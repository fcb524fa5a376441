//! The long soak: `soak inproc`, `soak tcp`, `soak unix`, or `soak rdma --host ADDRESS`. What goes
//! wrong is logged; `RUST_LOG` says how much.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use farcall_suite::soak::{Plan, soak};
use farcall_suite::{Failure, Harness, Path};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// How much more memory than after the first half of the calls there may be at the end.
const GROWTH_MAX: f64 = 1.5;

/// How long one call may take; among 256 others, on a slow device.
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
    /// What the calls are drawn from.
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
    println!("{path}: {calls} calls, {in_flight} at a time, seed {seed}");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
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
