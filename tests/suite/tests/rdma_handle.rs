//! One handle to RDMA devices, for all channels and servers of a process: what they share, and
//! which one a server uses.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use farcall::sim::SimNetwork;
use farcall::{Channel, Rdma, RdmaConfig, Server};
use farcall_suite::OneServer as _;
use farcall_suite::Probe;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use rpc_transport_rdma::sim::lab;

fn network() -> SimNetwork {
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    network
}

fn server(rdma: &Rdma) -> Server {
    Server::builder().rdma(rdma).add_service(ProbeService::new(Probe::new().0)).build()
}

/// Connections on each open device of a handle.
fn connections(rdma: &Rdma) -> Vec<usize> {
    rdma.lanes().iter().map(|lane| lane.connection_count).collect()
}

async fn connect(address: &str, rdma: &Rdma) -> Channel {
    let channel = Channel::builder(address).unwrap().rdma(rdma).connect().await.unwrap();
    let stub = ProbeStub::new(channel.clone());
    stub.echo(EchoRequest::default()).await.unwrap();
    assert_eq!(channel.info().unwrap().transport, "rdma");
    channel
}

#[tokio::test]
async fn both_sides_of_a_process_share_one_opening_of_the_device() {
    let network = network();
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    let server = server(&rdma);
    let listener = server.bind("rdma://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let (_one, _other) = (connect(&address, &rdma).await, connect(&address, &rdma).await);
    // Two connections with two ends each, on one lane of one device.
    assert_eq!(connections(&rdma), [4]);
    assert_eq!(lab::census(&network).contexts, 1);
    // The server gives the same handle back.
    assert_eq!(connections(server.rdma()), [4]);
    // A handle of its own opens the device once more.
    let own = Rdma::simulated(&network, RdmaConfig::default());
    let _third = connect(&address, &own).await;
    assert_eq!((connections(&rdma), connections(&own)), (vec![5], vec![1]));
    assert_eq!(lab::census(&network).contexts, 2);
}

#[tokio::test]
async fn a_programs_listener_uses_its_servers_devices() {
    let network = network();
    let [server_rdma, client_rdma] =
        [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("rdma://{}", listener.local_addr().unwrap());
    let server = server(&server_rdma);
    tokio::spawn(server.serve_incoming(listener));
    let _channel = connect(&address, &client_rdma).await;
    assert_eq!(connections(&server_rdma), [1]);
}

/// The number of device contexts that a channel at `scheme` opens for calls to a server that offers
/// RDMA.
async fn contexts_opened_over(scheme: &str) -> u64 {
    // Two networks, since the server may open its device before a client asks for RDMA.
    let (server_network, client_network) = (network(), network());
    let server = server(&Rdma::simulated(&server_network, RdmaConfig::default()));
    let rdma = Rdma::simulated(&client_network, RdmaConfig::default());
    let listener = server.bind("auto://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string().replace("auto://", scheme);
    tokio::spawn(listener.serve());
    for targets in [address.clone(), format!("{address},{}", &address[scheme.len()..])] {
        let channel = Channel::builder(targets).unwrap().rdma(&rdma).connect().await.unwrap();
        let stub = ProbeStub::new(channel);
        for _ in 0..20 {
            stub.echo(EchoRequest::default()).await.unwrap();
        }
    }
    lab::census(&client_network).contexts as u64
}

#[tokio::test]
async fn tcp_channel_never_opens_an_rdma_device() {
    assert_eq!(contexts_opened_over("tcp://").await, 0);
    assert!(contexts_opened_over("auto://").await > 0, "the count would show an open device");
}
