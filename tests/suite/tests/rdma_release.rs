//! Resources that an application keeps of a lost simulated device: none through an idle channel,
//! and those of a message that it keeps.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::sim::{SimDevice, SimNetwork};
use farcall::{Channel, Rdma, RdmaConfig, Server};
use farcall_suite::OneServer as _;
use farcall_suite::Probe;
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use rpc_transport_rdma::sim::{SimCensus, lab};

/// The bound on every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// After how long a message that is kept is told of.
const WARN_AFTER: Duration = Duration::from_millis(20);

/// A server on a device of its own, and a channel to it by another.
struct Rig {
    network: SimNetwork,
    device: SimDevice,
    channel: Channel,
    client: Rdma,
    _server: Rdma,
}

impl Rig {
    async fn new() -> Self {
        let network = SimNetwork::new(1);
        let device = network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
        let config = RdmaConfig::default().with_lease_warn_after(WARN_AFTER);
        let [server, client] = [(); 2].map(|()| Rdma::simulated(&network, config.clone()));
        let builder =
            Server::builder().rdma(&server).add_service(ProbeService::new(Probe::new().0));
        let listener = builder.bind("rdma://127.0.0.1:0").await.unwrap();
        let address = listener.local_address().to_string();
        tokio::spawn(listener.serve());
        let channel = Channel::builder(&address).unwrap().rdma(&client).connect().await.unwrap();
        Self { network, device, channel, client, _server: server }
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let looking = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let looked = tokio::time::timeout(LIMIT, looking).await;
        looked.unwrap_or_else(|_| panic!("{what}; left: {:?}", lab::census(&self.network)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_channel_keeps_nothing_of_a_device_that_is_gone() {
    let rig = Rig::new().await;
    assert_eq!(rig.channel.info().unwrap().transport, "rdma");
    rig.device.lose();
    rig.until("nothing is left", || lab::census(&rig.network) == SimCensus::default()).await;
    assert!(rig.channel.info().is_none());
    assert!(rig.channel.path().reason().is_some(), "what it died of is known without a call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_kept_keeps_the_device_and_is_told_of() {
    let rig = Rig::new().await;
    let stub = ProbeStub::new(rig.channel.clone());
    let request = ProduceRequest { seed: 1, len: 100_000 };
    let kept = stub.produce(request).await.unwrap().into_inner().payload;
    rig.until("the word on the lease", || {
        rig.client.lanes().iter().any(|lane| lane.leases_overdue == 1)
    })
    .await;
    rig.device.lose();
    rig.until("what the message keeps alone", || {
        let SimCensus { contexts, regions, queue_pairs, .. } = lab::census(&rig.network);
        // Its pool, which lives as long, also keeps the slab that the path's proof was read into.
        (contexts, queue_pairs) == (1, 0) && (1..=2).contains(&regions)
    })
    .await;
    assert!(kept == farcall_suite::payload(1, 100_000), "it is readable all the same");
    drop(kept);
    rig.until("nothing is left", || lab::census(&rig.network) == SimCensus::default()).await;
}
