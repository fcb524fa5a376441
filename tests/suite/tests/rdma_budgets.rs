//! Ended connections return everything that they took of a lane: entries of the completion queue,
//! receive slots, places, send slots and memory for large frames. A share that is not returned
//! would cost a process its RDMA after some time, without any attacker.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::rdma::LaneInfo;
use farcall::sim::SimNetwork;
use farcall::{Channel, Rdma, RdmaConfig, Server};
use farcall_suite::OneServer as _;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Probe, payload};

/// The bound on a test.
const LIMIT: Duration = Duration::from_secs(120);

/// Connections to servers without RDMA: seven times what used a lane up.
const FALLBACKS: usize = 2_000;

async fn serve(scheme: &str, rdma: &Rdma) -> String {
    let builder = Server::builder().rdma(rdma).add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind(&format!("{scheme}://127.0.0.1:0")).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address.replacen(scheme, "auto", 1)
}

async fn echo(channel: &Channel, len: usize) {
    let sent = payload(1, len);
    let request = EchoRequest { payload: sent.clone(), ..Default::default() };
    let reply = ProbeStub::new(channel.clone()).echo(request).await.unwrap().into_inner();
    assert!(reply.payload == sent, "{len} bytes came back differently");
}

/// Returns true if the lane has claimed and lent as much as a new one.
fn is_initial(lane: &LaneInfo) -> bool {
    lane.connection_count == 0
        && lane.claimed_entries == lane.receive_slots
        && lane.promised_slots == 0
        && lane.send_slots_in_use == 0
        && lane.source_bytes_in_use == 0
        && lane.sink_bytes_in_use == 0
        && lane.leases_held == 0
}

async fn until_initial(rdma: &Rdma) {
    let initial = async {
        while !rdma.lanes().iter().all(is_initial) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), initial).await;
    ended.unwrap_or_else(|_| panic!("something is not given back: {:?}", rdma.lanes()));
}

async fn bounded(test: impl Future<Output = ()>) {
    tokio::time::timeout(LIMIT, test).await.expect("the test ends in time");
}

fn network() -> SimNetwork {
    let network = SimNetwork::new(1);
    network.panic_on_violation();
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    network
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_on_rdma_after_2000_fallbacks() {
    bounded(async {
        let network = network();
        let [client, server] = [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
        let without = serve("tcp", &server).await;
        let with = serve("auto", &server).await;
        for count in 0..FALLBACKS {
            let channel =
                Channel::builder(&without).unwrap().rdma(&client).connect().await.unwrap();
            let info = channel.info().unwrap();
            assert_eq!(info.transport, "tcp");
            let reason = info.fallback.unwrap();
            assert!(
                reason.contains("not offered at the address"),
                "after {count} connections: {reason}"
            );
        }
        let channel = Channel::builder(&with).unwrap().rdma(&client).connect().await.unwrap();
        let info = channel.info().unwrap();
        assert_eq!(info.transport, "rdma", "{:?}", info.fallback);
        for len in [1000, 100_000, 3 << 20] {
            echo(&channel, len).await;
        }
        drop(channel);
        until_initial(&client).await;
        until_initial(&server).await;
    })
    .await;
}

/// A SEND needs no memory of the server for large frames, and an offer does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lent_memory_that_fits_a_slot_is_not_offered() {
    bounded(async {
        let network = network();
        let config = RdmaConfig::default().with_slot_len(128 << 10).with_receive_slots(64);
        let [client, server] = [(); 2].map(|()| Rdma::simulated(&network, config.clone()));
        let address = serve("auto", &server).await;
        let channel = Channel::builder(&address).unwrap().rdma(&client).connect().await.unwrap();
        let stub = ProbeStub::new(channel.clone());
        let registered = || server.lanes()[0].registered_bytes;
        let before = registered();
        for (len, is_offered) in [(100_000, false), (1 << 20, true)] {
            let payload = channel.buffer(len).await.freeze();
            assert_eq!(channel.info().unwrap().transport, "rdma");
            stub.echo(EchoRequest { payload, ..Default::default() }).await.unwrap();
            assert_eq!(registered() > before, is_offered, "{len} bytes");
        }
    })
    .await;
}
