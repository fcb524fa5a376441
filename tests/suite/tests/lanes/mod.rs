//! The behavior of several lanes of a device, real or simulated: connections are spread over them,
//! each lane works for its own, and calls of all sizes go over all of them at once.

use farcall::rdma::LaneInfo;
use farcall::{Channel, Rdma};
use farcall_suite::OneServer as _;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Failure, payload};
use tokio::task::JoinSet;

/// Connections on each lane.
const CONNECTIONS_PER_LANE: usize = 2;

/// A payload that travels whole, one that is read at once, and one that takes several READs.
const LENS: [usize; 3] = [1000, 100_000, 3 << 20];

/// Number of times that each client makes each call.
const ROUNDS: u64 = 4;

/// Connects to a server whose devices, like the clients', have `lane_count` lanes.
pub(crate) async fn spread(
    address: &str,
    server: &Rdma,
    client: &Rdma,
    lane_count: usize,
) -> Result<(), Failure> {
    let mut stubs = Vec::new();
    for count in 1..=lane_count * CONNECTIONS_PER_LANE {
        stubs.push(connect(address, client).await?);
        let lanes = client.lanes();
        let used_count = lanes.iter().filter(|lane| lane.connection_count > 0).count();
        assert_eq!(used_count, count.min(lane_count), "a lane for each connection, up to so many");
    }
    for side in [server, client] {
        let counts: Vec<_> = side.lanes().iter().map(|lane| lane.connection_count).collect();
        assert_eq!(counts, vec![CONNECTIONS_PER_LANE; lane_count]);
    }
    let before = [server.lanes(), client.lanes()];
    let mut tasks = JoinSet::new();
    for (seed, stub) in (0u64..).zip(stubs.iter().cloned()) {
        tasks.spawn(async move { call(&stub, seed).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let after = [server.lanes(), client.lanes()];
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        check_worked(before, after);
    }
    Ok(())
}

/// A new connection that is sure to run over RDMA.
async fn connect(address: &str, rdma: &Rdma) -> Result<ProbeStub, Failure> {
    let channel = Channel::builder(address)?.rdma(rdma).connect().await?;
    assert_eq!(channel.info().map(|info| info.transport), Some("rdma"));
    Ok(ProbeStub::new(channel))
}

async fn call(stub: &ProbeStub, seed: u64) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        for len in LENS {
            let sent = payload(seed * ROUNDS + round, len);
            let request = EchoRequest { payload: sent.clone(), ..Default::default() };
            let reply = stub.echo(request).await?.into_inner();
            assert!(reply.payload == sent, "{len} bytes of client {seed} came back differently");
        }
    }
    Ok(())
}

/// A lane has worked if it has reaped at least a completion for each message of its connections.
fn check_worked(before: &LaneInfo, after: &LaneInfo) {
    assert_eq!((&before.device, before.number), (&after.device, after.number));
    let completions = after.activity.completions - before.activity.completions;
    let posts = after.activity.posts - before.activity.posts;
    println!("{} lane {}: {completions} completions, {posts} posts", after.device, after.number);
    let least = CONNECTIONS_PER_LANE as u64 * ROUNDS * LENS.len() as u64;
    assert!(completions >= least && posts > 0, "{after:?}");
}
