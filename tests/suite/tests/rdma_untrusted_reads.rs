//! A device whose READs may complete short: it is declined with the evidence, and where it is
//! allowed, what a READ leaves out is never what another connection received. One whose READs
//! bring wrong bytes without a word carries no call.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use farcall::sim::{SimFaults, SimNetwork};
use farcall::{Channel, Rdma, RdmaConfig, Server};
use farcall_suite::OneServer as _;
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Probe, payload};
use rpc_transport_rdma::sim::SimDeviceConfig;

const DEFECT: &str = "this driver reports READs as complete that are not";

/// Calls of each connection.
const CALLS: u64 = 50;

fn network() -> SimNetwork {
    let network = SimNetwork::new(1);
    let mut device = SimDeviceConfig::new("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    device.read_defect = Some(DEFECT.to_owned());
    network.add_device_with(device);
    network
}

/// Serves at `scheme://127.0.0.1`, and gives the address.
async fn serve(scheme: &str, rdma: &Rdma) -> String {
    let builder = Server::builder().rdma(rdma).add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind(&format!("{scheme}://127.0.0.1:0")).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

#[tokio::test(start_paused = true)]
async fn a_device_with_untrusted_reads_is_declined() {
    let network = network();
    let rdma = || Rdma::simulated(&network, RdmaConfig::default());
    let address = serve("auto", &rdma()).await;
    let channel = Channel::builder(&address).unwrap().rdma(&rdma()).connect().await.unwrap();
    let info = channel.info().unwrap();
    let reason = info.fallback.unwrap_or_default();
    assert_eq!(info.transport, "tcp", "a device with this defect: {DEFECT}");
    assert!(reason.contains(DEFECT) && reason.contains("allow_untrusted_reads"), "{reason}");

    let required = address.replace("auto://", "rdma://");
    let error =
        Channel::builder(&required).unwrap().rdma(&rdma()).connect().await.unwrap_err().to_string();
    assert!(error.contains(DEFECT), "{error}");
    assert_eq!(network.counters().reads, 0);
}

/// Downloads payloads of its own seeds, and counts the bytes that neither are theirs nor zero.
async fn foreign_bytes(stub: &ProbeStub<Channel>, seeds: u64) -> usize {
    let mut count = 0;
    for seed in seeds..seeds + CALLS {
        let len = 20_000 + 137 * usize::try_from(seed).unwrap();
        let request = ProduceRequest { seed, len: len as u64 };
        // One whose first bytes are missing is no message, and fails.
        let Ok(reply) = stub.produce(request).await else { continue };
        let found = reply.into_inner().payload;
        let right = payload(seed, len);
        let bytes = found.iter().zip(&right);
        count += bytes.filter(|(found, right)| found != right && **found != 0).count();
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_short_read_never_exposes_another_connections_bytes() {
    let network = network();
    let config = RdmaConfig::default().with_allow_untrusted_reads(true);
    let [server, client] = [(); 2].map(|()| Rdma::simulated(&network, config.clone()));
    let address = serve("rdma", &server).await;
    let connect = async || {
        let channel = Channel::builder(&address).unwrap().rdma(&client).connect().await.unwrap();
        assert_eq!(channel.info().unwrap().transport, "rdma");
        ProbeStub::new(channel)
    };
    // These fill the buffers that are used again below.
    let (one, other) = (connect().await, connect().await);
    assert_eq!(foreign_bytes(&one, 0).await, 0);
    let mut faults = SimFaults::default();
    faults.short_read = 0.5;
    network.set_faults(faults);
    let foreign = foreign_bytes(&other, 1000 - CALLS).await;
    assert!(network.counters().short_reads > CALLS / 5, "{:?}", network.counters());
    assert_eq!(foreign, 0, "bytes of another connection were handed to the application");
    assert_eq!(network.violations(), []);
}

#[tokio::test(start_paused = true)]
async fn calls_go_over_tcp_where_reads_bring_wrong_bytes() {
    let [mut short, mut corrupt, mut stale] = [(); 3].map(|()| SimFaults::default());
    (short.short_read, corrupt.corrupt_read, stale.stale_read) = (1.0, 1.0, 1.0);
    for faults in [short, corrupt, stale] {
        let network = SimNetwork::new(1);
        network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
        network.set_faults(faults.clone());
        let [server, client] = [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
        let address = serve("auto", &server).await;
        let channel = Channel::builder(&address).unwrap().rdma(&client).connect().await.unwrap();
        let info = channel.info().unwrap();
        let reason = info.fallback.unwrap_or_default();
        assert_eq!(info.transport, "tcp", "{faults:?}");
        assert!(reason.contains("READs bring wrong bytes"), "{reason}");
        let request = ProduceRequest { seed: 7, len: 100_000 };
        let reply = ProbeStub::new(channel).produce(request).await.unwrap().into_inner();
        assert!(reply.payload == payload(7, 100_000), "{faults:?}");
    }
}
