//! Measures calls over one address: `rpc-bench server ADDRESS`, and `rpc-bench client ADDRESS`
//! in another process.
//!
//! The client prints one line: operation, size, calls in flight, calls, p50 and p99 in
//! microseconds, calls a second, and MB/s of payload.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Args, Parser, Subcommand, ValueEnum};
use farcall::{Channel, Config, Limits, Server};
use farcall_benches::proto::bench_rpc::{BenchService, BenchStub};
use farcall_benches::proto::{Payload, Wanted};
use farcall_benches::service::Service;
use futures::future::try_join_all;
use hdrhistogram::Histogram;

#[derive(Parser)]
#[command(about = "Measures farcall calls between two processes")]
struct Options {
    /// How long to poll before sleeping, in microseconds (RDMA only).
    #[arg(long, global = true)]
    spin_us: Option<u64>,
    /// How far the keys reach that the peer is given: auto, window or region (RDMA only).
    #[cfg(feature = "rdma")]
    #[arg(long, global = true, default_value_t = farcall::RkeyScope::Auto)]
    rkey_scope: farcall::RkeyScope,
    /// Threads of the runtime; 0 runs everything on the main thread.
    #[arg(long, global = true, default_value_t = 0)]
    threads: usize,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves until it is killed, or for the given time.
    Server {
        /// Where to listen, for example auto://10.0.0.1:7000.
        address: String,
        /// How long to serve, in seconds.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// Calls a server.
    Client(Load),
}

#[derive(Args)]
struct Load {
    /// Whom to call.
    address: String,
    #[arg(long, value_enum, default_value_t = Operation::Echo)]
    operation: Operation,
    /// Bytes of payload.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Calls in flight.
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Calls that are measured.
    #[arg(long, default_value_t = 10_000)]
    calls: usize,
    /// Calls before those, which are not.
    #[arg(long, default_value_t = 1_000)]
    warm_up: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Operation {
    Echo,
    Upload,
    Download,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut builder = match options.threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(options.threads.max(1)).enable_all().build()?;
    let config = config(&options);
    runtime.block_on(async {
        match options.command {
            Command::Server { address, seconds } => serve(&address, &config, seconds).await,
            Command::Client(load) => measure(&load, &config).await,
        }
    })
}

fn config(options: &Options) -> Config {
    let limits =
        Limits { message_len_max: 65 << 20, receiving_bytes_max: 1 << 30, ..Limits::default() };
    let config = Config::default().with_limits(limits);
    #[cfg(feature = "rdma")]
    let config = {
        let mut rdma = farcall::RdmaConfig::default();
        rdma.rkey_scope = options.rkey_scope;
        rdma.spin = options.spin_us.map_or(rdma.spin, Duration::from_micros);
        config.with_rdma(rdma)
    };
    #[cfg(not(feature = "rdma"))]
    let _ = options;
    config
}

async fn serve(address: &str, config: &Config, seconds: u64) -> Result<()> {
    let endpoint = farcall::bind_with(address, config).await?;
    println!("listening on {}", endpoint.address());
    let builder = Server::builder().add_service(BenchService::new(Service::default()));
    let server = endpoint.configure(builder).build();
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    Ok(server.serve_until(endpoint, end).await?)
}

async fn measure(load: &Load, config: &Config) -> Result<()> {
    ensure!(load.in_flight > 0 && load.calls > 0, "--in-flight and --calls must be at least 1");
    let channel = farcall::connect_with(&load.address, config).await?;
    let stub = BenchStub::new(channel.clone());
    run(load, &stub, load.warm_up).await?;
    let start = Instant::now();
    let latencies = run(load, &stub, load.calls).await?;
    let seconds = start.elapsed().as_secs_f64();
    print(load, &channel, &latencies, seconds)
}

/// Makes `calls` calls, as many in flight at a time as asked for.
async fn run(load: &Load, stub: &BenchStub<Channel>, calls: usize) -> Result<Histogram<u64>> {
    let payload = Payload { data: Bytes::from(vec![5; load.size]) };
    let share = calls.div_ceil(load.in_flight);
    let workers = (0..load.in_flight).map(|_| worker(load, stub, &payload, share));
    let mut all = Histogram::new(3)?;
    for latencies in try_join_all(workers).await? {
        all.add(latencies)?;
    }
    Ok(all)
}

async fn worker(
    load: &Load,
    stub: &BenchStub<Channel>,
    payload: &Payload,
    calls: usize,
) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::new(3)?;
    for _ in 0..calls {
        let start = Instant::now();
        let len = match load.operation {
            Operation::Echo => stub.echo(payload.clone()).await?.into_inner().data.len(),
            Operation::Upload => stub.upload(payload.clone()).await.map(|_| load.size)?,
            Operation::Download => {
                let wanted = Wanted { len: load.size as u64 };
                stub.download(wanted).await?.into_inner().data.len()
            }
        };
        ensure!(len == load.size, "{len} bytes came back, not {}", load.size);
        latencies.record(u64::try_from(start.elapsed().as_nanos())?)?;
    }
    Ok(latencies)
}

fn print(load: &Load, channel: &Channel, all: &Histogram<u64>, seconds: f64) -> Result<()> {
    let info = channel.info().context("the connection is gone")?;
    let us = |quantile| all.value_at_quantile(quantile) as f64 / 1000.0;
    let rate = all.len() as f64 / seconds;
    println!(
        "{} {:?} {} B, {} in flight: {} calls, p50 {:.1} us, p99 {:.1} us, {rate:.0} calls/s, \
         {:.1} MB/s",
        info.transport,
        load.operation,
        load.size,
        load.in_flight,
        all.len(),
        us(0.5),
        us(0.99),
        rate * load.size as f64 / 1e6,
    );
    if let Some(reason) = info.fallback {
        println!("not on RDMA: {reason}");
    }
    Ok(())
}
