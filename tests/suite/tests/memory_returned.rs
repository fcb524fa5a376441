//! The allocations that hostile clients cause in a server, counted by the allocator. They equal the
//! budget's count, and are freed when the clients have gone, except for the memory that a pool
//! keeps.

use std::time::Duration;

use farcall::{Limits, Server};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, SERVICE};
use farcall_suite::proto::{EchoRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_with, record};
use prost::Message;
use rpc_core::wire::FrameKind;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(60);

const WHOLE: u8 = 1;
const FIRST: u8 = 2;

/// Maximum bytes of used memory that the TCP transport keeps for the next frames.
const POOL_KEEPS: u64 = 256 << 20;

/// Bytes by which tables, sockets' buffers and the tests themselves may differ.
const SLACK: u64 = 1 << 20;

fn allocated() -> u64 {
    dhat::HeapStats::get().curr_bytes as u64
}

fn method(name: &str) -> u16 {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    u16::try_from(index.expect("the service has it")).expect("it has few")
}

fn request(call: u64, name: &str, message: &impl Message) -> Vec<u8> {
    record(WHOLE, 0, &frame(FrameKind::Request, call, method(name), &message.encode_to_vec()))
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

async fn serve() -> Result<(Server, String), Failure> {
    let builder = Server::builder().max_memory(4 << 30);
    let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    Ok((server, address))
}

/// `count` connections send the same and read nothing; then they are gone. Gives what the budget
/// counted meanwhile, and by how much more was allocated.
async fn attack(
    server: &Server,
    address: &str,
    count: usize,
    bytes: &[u8],
) -> Result<(u64, u64), Failure> {
    let before = allocated();
    let mut peers = Vec::new();
    for _ in 0..count {
        let mut peer = RawPeer::connect(address).await?;
        peer.send(&hello_with(&Limits::default(), Vec::new())).await?;
        peer.read_hello().await?;
        peer.send(bytes).await?;
        peers.push(peer);
    }
    until("what was sent", || {
        let infos = server.connections();
        let received = infos.iter().map(|info| info.stats.received_bytes);
        received.filter(|len| *len >= bytes.len() as u64).count() == count
    })
    .await;
    // What is to be answered has its answer, and that waits.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let held = (server.memory_held(), allocated().saturating_sub(before));
    drop(peers);
    until("the end", || server.connections().is_empty() && server.memory_held() == 0).await;
    Ok(held)
}

/// Large requests of which the rest does not come.
async fn half_frames(server: &Server, address: &str) -> Result<(), Failure> {
    /// More than the pool keeps.
    const CONNECTIONS: usize = 100;
    let request = frame(FrameKind::Request, 1, method("/Echo"), &vec![0; 4_000_000]);
    let len = (request.len() as u64).to_le_bytes();
    let first = record(FIRST, 1, &[&len[..], &request[..64]].concat());
    let before = allocated();
    let (held, grown) = attack(server, address, CONNECTIONS, &first).await?;
    println!("half frames: {held} bytes count, {grown} more are allocated");
    assert!(held >= CONNECTIONS as u64 * 4_000_000, "{held}");
    let first_rest = allocated().saturating_sub(before);
    attack(server, address, CONNECTIONS, &first).await?;
    let second_rest = allocated().saturating_sub(before);
    println!("when they are gone: {first_rest}, and after a second time {second_rest}");
    assert!(first_rest <= POOL_KEEPS + SLACK, "{first_rest} are left");
    assert!(second_rest <= first_rest + SLACK, "it leaks: {first_rest}, then {second_rest}");
    Ok(())
}

/// Calls of which each is answered, and the answers wait behind others that nothing reads.
async fn answers(server: &Server, address: &str) -> Result<(), Failure> {
    const CALLS: u64 = 1024;
    const LARGE_COUNT: u64 = 90;
    let large = |call| request(call, "/Produce", &ProduceRequest { seed: call, len: 60 << 10 });
    let small = |call| request(call, "/Echo", &EchoRequest::default());
    let few: Vec<u8> = (0..LARGE_COUNT).flat_map(large).collect();
    let all: Vec<u8> = few.iter().copied().chain((LARGE_COUNT..CALLS).flat_map(small)).collect();
    attack(server, address, 4, &all).await?;
    let before = allocated();
    let (held_few, grown_few) = attack(server, address, 4, &few).await?;
    let (held_all, grown_all) = attack(server, address, 4, &all).await?;
    let calls = 4 * (CALLS - LARGE_COUNT);
    let each = |all: u64, few: u64| all.saturating_sub(few) / calls;
    println!(
        "an answer that waits: {} bytes count, {} are allocated; all of them: {held_all} and \
         {grown_all}",
        each(held_all, held_few),
        each(grown_all, grown_few),
    );
    assert!(each(held_all, held_few) >= each(grown_all, grown_few), "it costs more than it counts");
    let rest = allocated().saturating_sub(before);
    assert!(rest <= SLACK, "{rest} are left");
    Ok(())
}

/// One test, since what is allocated is counted for the process.
#[test]
fn what_was_allocated_is_counted_and_comes_back() -> Result<(), Failure> {
    let _profiler = dhat::Profiler::builder().testing().build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (server, address) = serve().await?;
        half_frames(&server, &address).await?;
        answers(&server, &address).await
    })
}
