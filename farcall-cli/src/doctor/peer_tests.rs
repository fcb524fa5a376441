//! Paths to a peer over simulated devices: sound ones, and one fault in each step.

use clap::Parser as _;
use farcall::sim::{SimFaults, SimNetwork};
use farcall::{Channel, Rdma, RdmaConfig, Server};
use rpc_transport_rdma::sim::SimDeviceConfig;

use super::finding::{Cause, Finding, Mark};
use super::peer::Peer;
use crate::args::Cli;

const CLIENT: &str = "127.0.0.1";
const SERVER: &str = "127.0.0.2";

/// A network with a device at each address.
fn network(addresses: &[&str]) -> SimNetwork {
    let network = SimNetwork::new(1);
    for (index, address) in addresses.iter().enumerate() {
        network.add_device(&format!("sim{index}"), &[address.parse().unwrap()]);
    }
    network
}

/// Tests the path to a server, whose devices may be those of another network.
async fn examine(network: &SimNetwork, server: &SimNetwork) -> (bool, Vec<Finding>) {
    let devices = |network| Rdma::simulated(network, RdmaConfig::default());
    let (_, health) = tonic_health::server::health_reporter();
    let listener = Server::builder()
        .add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET)
        .rdma(&devices(server))
        .bind(format!("auto://{SERVER}:0"))
        .await
        .unwrap();
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let builder = Channel::builder(&address).unwrap().rdma(&devices(network));
    let global = Cli::parse_from(["farcall", "doctor"]).global;
    let mut checks = Vec::new();
    let works = Peer::with_builder(builder).examine(&global, &mut checks).await;
    serving.abort();
    (works, checks)
}

/// Checks that the last step failed, and returns its cause and side.
fn failure((works, checks): (bool, Vec<Finding>)) -> (&'static str, Option<Cause>, &'static str) {
    let last = checks.last().unwrap();
    assert!(!works && last.is_fault() && !last.fixes.is_empty(), "{checks:?}");
    let before = checks.iter().rev().skip(1);
    assert!(before.clone().all(|check| check.mark == Mark::Ok), "{checks:?}");
    (last.name, last.cause, last.side.unwrap())
}

#[tokio::test]
async fn sound_path_passes_each_step() {
    let network = network(&[CLIENT, SERVER]);
    let (works, checks) = examine(&network, &network).await;
    assert!(works, "{checks:?}");
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["name", "tcp", "hello", "proof", "READ"]);
    assert!(checks.iter().all(|check| check.mark == Mark::Ok), "{checks:?}");
}

#[tokio::test]
async fn side_without_a_device_is_named() {
    let [both, none] = [&[CLIENT, SERVER][..], &[]].map(network);
    let without = Some(Cause::DeviceNode);
    assert_eq!(failure(examine(&none, &both).await), ("offer", without, "this host"));
    assert_eq!(failure(examine(&both, &none).await), ("bootstrap", without, "server"));
}

#[tokio::test]
async fn network_that_drops_packets_is_named() {
    // No packet goes from one network to the other.
    let [client, server] = [&[CLIENT], &[SERVER]].map(|address| network(address));
    let expected = ("proof", Some(Cause::Udp4791), "network");
    assert_eq!(failure(examine(&client, &server).await), expected);
}

#[tokio::test]
async fn device_that_grants_no_read_is_named() {
    let network = SimNetwork::new(1);
    let mut config = SimDeviceConfig::new("sim0", &[CLIENT.parse().unwrap()]);
    config.attributes.reads_in_max = 0;
    config.attributes.reads_out_max = 0;
    network.add_device_with(config);
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    let survey = rdma.survey().unwrap();
    assert_eq!(survey[0].max_reads, 0);
    let device = super::facts::Device {
        name: "sim0".into(),
        node: super::facts::Node::Usable("uverbs0".into()),
        ..Default::default()
    };
    let mut facts = super::facts::Facts { devices: vec![device], ..Default::default() };
    super::live::add_verbs(&mut facts, &rdma, Some(CLIENT.parse().unwrap()));
    let findings = super::host(&facts);
    let named = findings.iter().any(|it| it.cause == Some(Cause::MaxRdAtomic));
    assert!(named, "{findings:?}");
    let reason = super::loopback::measure(&rdma, CLIENT.parse().unwrap()).await.unwrap_err();
    assert_eq!(super::path::host_fault(&reason).cause, Some(Cause::MaxRdAtomic), "{reason}");
}

#[tokio::test]
async fn loopback_measures_small_and_large_messages() {
    let network = network(&[CLIENT]);
    // Debian's limit on locked memory.
    let mut faults = SimFaults::harmless();
    faults.memory_lock_bytes = Some(8 << 20);
    network.set_faults(faults);
    let rdma = Rdma::simulated(&network, super::handle().config().clone());
    let address = CLIENT.parse().unwrap();
    let measured = super::loopback::measure(&rdma, address).await.unwrap();
    // No round trip takes less than a microsecond.
    assert!(measured.megabytes > 0.0 && measured.round_trip.as_micros() > 0, "{measured:?}");
}
