//! Connections work with the least of each setting of RDMA that is in range.

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::sim::SimNetwork;
use farcall::{Channel, Code, Rdma, RdmaConfig, Server, Status};
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Failure, Probe, payload};
use futures::future::join_all;

/// The bound on the calls of one configuration.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls in flight together: more than the slots and credits of the least configuration.
const CALL_COUNT: u64 = 8;

/// A payload that fits a slot of any length, and one that fits none.
const LENS: [usize; 2] = [100, 10_000];

/// Calls by RDMA, all at once.
async fn calls(rdma: &RdmaConfig) -> Result<Vec<Result<(), Status>>, Failure> {
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    // Each side has a lane of its own.
    let [client, server] = [(); 2].map(|()| Rdma::simulated(&network, rdma.clone()));
    let (probe, _watch) = Probe::new();
    let server = Server::builder().rdma(&server).add_service(ProbeService::new(probe)).build();
    let listener = server.bind("rdma://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let channel = Channel::builder(&address)?.rdma(&client).connect().await?;
    let stub = ProbeStub::new(channel);
    let echo = async |seed, len| {
        let sent = payload(seed, len);
        let request = EchoRequest { payload: sent.clone(), ..Default::default() };
        let reply = stub.echo(request).await?.into_inner();
        assert_eq!(reply.payload, sent);
        Ok(())
    };
    let lens = LENS.into_iter().flat_map(|len| (0..CALL_COUNT).map(move |seed| (seed, len)));
    let calls = join_all(lens.map(|(seed, len)| echo(seed, len)));
    let ended = tokio::time::timeout(LIMIT, calls).await.expect("every call ends");
    serving.abort();
    Ok(ended)
}

/// Makes calls, and checks that all succeed.
async fn check(rdma: RdmaConfig) -> Result<(), Failure> {
    for result in calls(&rdma).await? {
        assert!(result.is_ok(), "{result:?} with {rdma:?}");
    }
    Ok(())
}

#[tokio::test]
async fn calls_succeed_with_the_least_of_each_setting() -> Result<(), Failure> {
    let new = RdmaConfig::default;
    let each = [
        new().with_receive_slots(3),
        new().with_slot_len(448),
        new().with_send_slots(1),
        new().with_max_credits(1),
        new().with_send_depth(1),
        new().with_max_connections(1),
        new().with_max_read_len(1),
        new().with_max_reads(1),
        new().with_read_queue_pairs(0),
        new().with_max_read_bytes(1),
        new().with_spin(Duration::ZERO),
    ];
    for rdma in each {
        check(rdma).await?;
    }
    Ok(())
}

#[tokio::test]
async fn calls_succeed_with_the_least_of_all_settings_together() -> Result<(), Failure> {
    let least = RdmaConfig::default()
        .with_receive_slots(3)
        .with_slot_len(448)
        .with_send_slots(1)
        .with_max_credits(1)
        .with_send_depth(1)
        .with_max_connections(1)
        .with_max_read_len(64)
        .with_max_reads(1)
        .with_read_queue_pairs(0)
        .with_max_read_bytes(1)
        .with_spin(Duration::ZERO);
    check(least).await
}

#[tokio::test]
async fn a_frame_beyond_the_least_memory_is_refused() -> Result<(), Failure> {
    let least = RdmaConfig::default().with_slot_len(448);
    let each = [least.clone().with_max_source_bytes(448), least.with_max_sink_bytes(448)];
    for rdma in each {
        for result in calls(&rdma.with_memory_timeout(Duration::ZERO)).await? {
            let Err(status) = result else { continue };
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
    }
    Ok(())
}
