//! The cost of a call's neighbours: small calls alone on a connection, next to a stream that its
//! client does not read, and next to messages of 64 MiB.
//!
//! Client and server are threads of one process, each with a runtime of its own. Every round
//! measures each neighbour against the same connection alone just before it; the median of the
//! rounds' ratios is printed with its range, and the process's memory with it.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Parser;
use farcall::{Channel, Limits, Rdma, RdmaConfig, Server};
use farcall_benches::proto::bench_rpc::{BenchService, BenchStub};
use farcall_benches::proto::{Payload, Wanted};
use farcall_benches::service::Service;
use farcall_testkit::counters::ProcessStatus;
use hdrhistogram::Histogram;
use tokio::task::JoinHandle;

/// The length of a large message.
const LARGE_LEN: usize = 64 << 20;

/// The length of the messages that the client does not read.
const UNREAD_LEN: u64 = 1 << 10;

#[derive(Parser)]
#[command(about = "Measures small calls beside a slow reader and beside large messages")]
struct Options {
    /// Address to serve on, for example auto://10.0.0.1:0.
    #[arg(default_value = "tcp://127.0.0.1:0")]
    address: String,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of times that everything is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A neighbour of the measured calls on their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    UnreadStream,
    LargeMessages,
}

/// One measurement.
struct Sample {
    p50_us: f64,
    p99_us: f64,
    calls: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let rdma = Rdma::new(RdmaConfig::default().with_allow_untrusted_reads(true));
    let server = runtime()?;
    let builder = Server::builder().limits(limits()).rdma(&rdma);
    let serving = builder.add_service(BenchService::new(Service::default())).build();
    let listener = server.block_on(serving.bind(&options.address))?;
    let address = listener.local_address().to_string();
    server.spawn(listener.serve());
    let client = runtime()?;
    let measured = client.block_on(async {
        let builder = Channel::builder(&address)?.limits(limits()).rdma(&rdma);
        let channel = builder.connect().await?;
        let info = channel
            .endpoints()
            .into_iter()
            .find_map(|it| it.info)
            .context("the connection is gone")?;
        println!("{} at {address}", info.transport);
        let stub = BenchStub::new(channel);
        for neighbour in [Neighbour::UnreadStream, Neighbour::LargeMessages] {
            compare(&stub, neighbour, &options).await?;
        }
        Ok(())
    });
    server.shutdown_background();
    measured
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn limits() -> Limits {
    Limits::default().with_max_message_len(65 << 20).with_max_receiving_bytes(1 << 30)
}

async fn compare(stub: &BenchStub<Channel>, neighbour: Neighbour, options: &Options) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    let mut ratios = Vec::new();
    for _ in 0..options.rounds {
        let before_kib = ProcessStatus::own()?.resident_kib()?;
        let alone = sample(stub, time).await?;
        let beside = match neighbour {
            Neighbour::UnreadStream => {
                let unread = stub.feed(Wanted { len: UNREAD_LEN }).await?;
                let beside = sample(stub, time).await?;
                drop(unread);
                beside
            }
            Neighbour::LargeMessages => {
                let transfers = [upload(stub.clone()), download(stub.clone())];
                let beside = sample(stub, time).await?;
                transfers.iter().for_each(JoinHandle::abort);
                beside
            }
        };
        ratios.push(beside.p99_us / alone.p99_us);
        print(neighbour, &alone, &beside);
        println!(
            "  memory {before_kib} KiB before, {} KiB after",
            ProcessStatus::own()?.resident_kib()?
        );
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).context("--rounds must be at least 1")?;
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!("{neighbour:?}: p99 {median:.2} times that alone ({least:.2} to {most:.2})");
    Ok(())
}

fn print(neighbour: Neighbour, alone: &Sample, beside: &Sample) {
    for (what, sample) in [("alone".to_owned(), alone), (format!("{neighbour:?}"), beside)] {
        let Sample { p50_us, p99_us, calls } = sample;
        println!("  {what:<14} p50 {p50_us:>8.1} us, p99 {p99_us:>8.1} us, {calls} calls");
    }
}

/// Small calls, one after the other.
async fn sample(stub: &BenchStub<Channel>, time: Duration) -> Result<Sample> {
    let payload = Payload { data: Bytes::from_static(&[5; 64]) };
    let mut latencies = Histogram::<u64>::new(3)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let start = Instant::now();
        stub.echo(payload.clone()).await?;
        latencies.record(u64::try_from(start.elapsed().as_nanos())?)?;
    }
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Sample { p50_us: us(0.5), p99_us: us(0.99), calls: latencies.len() })
}

fn upload(stub: BenchStub<Channel>) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        let data = Bytes::from(vec![5; LARGE_LEN]);
        loop {
            stub.upload(Payload { data: data.clone() }).await?;
        }
    })
}

fn download(stub: BenchStub<Channel>) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        loop {
            stub.download(Wanted { len: LARGE_LEN as u64 }).await?;
        }
    })
}
