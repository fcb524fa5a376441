//! Counts the heap allocations of a call, client and server together, against a budget.
//!
//! Everything runs on one thread over a warm connection, so that the counts repeat. What tables
//! and queues allocate when they grow is spread over the calls that are counted.

use std::future::Future;
use std::process::ExitCode;

use bytes::Bytes;
use farcall::{Channel, Server, Status};
use farcall_suite::OneServer as _;
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::small_calls::{chat, requests, shared_payload, unary};
use futures::stream;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const CALL_COUNT: u64 = 2_000;
const MESSAGE_COUNT: u64 = 10_000;

/// For a unary call without metadata, over TCP: the handler's future, and the one that tonic's
/// `async_trait` puts around the handler itself. The two frames lie in blocks, which are used
/// again.
const UNARY_MAX: f64 = 2.05;

/// The same in the process, whose frames have memory of their own: two more, and a fifth because
/// prost clones a `Bytes` field to encode it, which makes such memory shared.
const UNARY_INPROC_MAX: f64 = 5.0;

/// For a streamed message, each way that it goes: 57 of them share a frame, and a frame costs its
/// memory and the split into messages.
const MESSAGE_MAX: f64 = 0.05;

/// The counts of one path.
struct Row {
    path: &'static str,
    what: &'static str,
    count: f64,
    max: f64,
}

impl Row {
    /// Prints the row; false when it is over its budget.
    fn show(&self) -> bool {
        let Self { path, what, count, max } = self;
        println!("{path:<7} {what:<24} {count:>7.3} allocations, at most {max}");
        count <= max
    }
}

fn main() -> ExitCode {
    let profiler = match std::env::var_os("FARCALL_DHAT") {
        Some(_) => dhat::Profiler::new_heap(),
        None => dhat::Profiler::builder().testing().build(),
    };
    let rows = ["inproc://allocations", "tcp://127.0.0.1:0"].map(measure);
    drop(profiler);
    let mut is_within = true;
    for rows in rows {
        match rows {
            Ok(rows) => rows.iter().for_each(|row| is_within &= row.show()),
            Err(error) => {
                println!("not measured: {error}");
                is_within = false;
            }
        }
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(address: &'static str) -> Result<[Row; 3], Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (probe, _watch) = Probe::new();
        let builder = Server::builder().add_service(ProbeService::new(probe));
        let listener = builder.bind(address).await?;
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        let channel = Channel::connect(&address).await?;
        let path = channel.info().map_or("nothing", |info| info.transport);
        let rows = rows(path, &ProbeStub::new(channel)).await?;
        serving.abort();
        Ok(rows)
    })
}

async fn rows(path: &'static str, stub: &ProbeStub) -> Result<[Row; 3], Status> {
    let payload = shared_payload();
    let unary = counted(CALL_COUNT, |count| unary(stub, &payload, count)).await?;
    let upload = counted(MESSAGE_COUNT, |count| upload(stub, &payload, count)).await?;
    let chat = counted(MESSAGE_COUNT, |count| chat(stub, &payload, count)).await?;
    let row = |what, count, max| Row { path, what, count, max };
    let unary_max = if path == "inproc" { UNARY_INPROC_MAX } else { UNARY_MAX };
    Ok([
        row("a unary call", unary, unary_max),
        row("a message to the server", upload, MESSAGE_MAX),
        row("a message there and back", chat, 2.0 * MESSAGE_MAX),
    ])
}

/// The allocations of each of `count` units of `work`, after as many that warm everything up.
async fn counted<F>(count: u64, work: impl Fn(u64) -> F) -> Result<f64, Status>
where
    F: Future<Output = Result<(), Status>>,
{
    work(count).await?;
    let before = dhat::HeapStats::get().total_blocks;
    work(count).await?;
    let blocks = dhat::HeapStats::get().total_blocks - before;
    Ok(blocks as f64 / count as f64)
}

async fn upload(stub: &ProbeStub, payload: &Bytes, count: u64) -> Result<(), Status> {
    let reply = stub.upload(stream::iter(requests(payload, count))).await?.into_inner();
    assert_eq!(reply.count, count);
    Ok(())
}
