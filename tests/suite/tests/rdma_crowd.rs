//! Clients that come at once, more than a lane has places for: all get RDMA, and a call over it.
//!
//! `FARCALL_CROWD_CLIENTS` sets how many come, `FARCALL_CROWD_CREATE_MILLIS` how long the server's
//! firmware takes for a queue pair. Each client needs three of them.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use farcall::sim::{SimNetwork, SimVerb};
use farcall::{Backoff, Channel, Rdma, RdmaConfig, Server};
use farcall_suite::Probe;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use tokio::task::JoinSet;

/// Far longer than the default takes.
const LIMIT: Duration = Duration::from_secs(240);

/// Connections of one lane.
const PLACES: usize = 256;

const CLIENTS: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("it is a number"))
}

/// Connects, and calls until a call goes over RDMA.
async fn reach_rdma(address: String, rdma: Rdma) -> Channel {
    let builder = Channel::builder(address).unwrap().rdma(&rdma).path_backoff(Backoff::PATH);
    let channel = builder.connect_lazy();
    let stub = ProbeStub::new(channel.clone());
    loop {
        stub.echo(EchoRequest::default()).await.unwrap();
        if channel.path().is_upgraded() {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_of_a_crowd_gets_rdma() {
    let clients = number("FARCALL_CROWD_CLIENTS", PLACES + PLACES / 4);
    let create = number("FARCALL_CROWD_CREATE_MILLIS", 0);
    let network = SimNetwork::new(9);
    network.panic_on_violation();
    drop(network.add_device("client", &[CLIENTS.into()]));
    let device = network.add_device("server", &[SERVER.into()]);
    let create = Duration::from_millis(u64::try_from(create).unwrap());
    device.set_command_delay(SimVerb::CreateQueuePair, create);
    let [server, client] = [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
    let builder = Server::builder().rdma(&server).add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind(format!("auto://{SERVER}:0")).await.unwrap();
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let start = Instant::now();
    let mut coming = JoinSet::new();
    for _ in 0..clients {
        coming.spawn(reach_rdma(address.clone(), client.clone()));
    }
    let channels = tokio::time::timeout(LIMIT, coming.join_all()).await.expect("all are served");
    let took = start.elapsed();
    // Attempts that came too late may still leave their places.
    let settling = async {
        while server.lanes().iter().map(|lane| lane.connection_count).sum::<usize>() != clients {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, settling).await.expect("no place is left behind");
    let lanes = server.lanes();
    let counts: Vec<_> = lanes.iter().map(|lane| lane.connection_count).collect();
    let bytes: usize = lanes.iter().map(|lane| lane.receive_bytes).sum();
    println!(
        "{clients} clients at once, {create:?} for each queue pair: {} with RDMA after {took:.1?}; \
         lanes {counts:?}, {bytes} bytes to receive into",
        channels.len()
    );
    assert!(counts.len() >= clients.div_ceil(PLACES));
    serving.abort();
}
