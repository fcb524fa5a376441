//! Rates of simulated ports, on the simulation's clock: queue pairs for READs add up their own
//! rates and those of bonded ports, and a bonded port that is lost costs time alone.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use farcall::sim::{SimDevice, SimDeviceConfig, SimNetwork, SimPort};
use farcall::{Channel, RdmaConfig, Server};
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{OnLoopback, OneServer as _, Probe, payload};
use rpc_core::client::ClientConfig;
use rpc_core::connect::UpgradePolicy;
use rpc_core::inproc::{InprocConnector, InprocListener};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// In bytes per second. The READs under way take longer than the timeout after which a queue pair
/// sends again.
const RATE: u64 = 100_000_000;

/// Bytes of a reply, and replies that are under way at once.
const LEN: u64 = 1 << 20;
const CALLERS: u64 = 8;

/// Calls of a caller, one after the other.
const CALLS: u64 = 5;

/// The ports of a device, and the queue pairs over them.
#[derive(Debug, Clone, Copy)]
struct Case {
    read_queue_pairs: u8,
    lag_ports: u8,
    per_queue_pair: u64,
    per_port: u64,
}

/// A server and a client over one device.
struct Rig {
    network: SimNetwork,
    device: SimDevice,
    channel: Channel,
}

impl Rig {
    async fn start(name: &str, case: Case) -> Self {
        let network = SimNetwork::new(9);
        network.panic_on_violation();
        let port = SimPort::new(&[[127, 0, 0, 1].into()])
            .with_lag_ports(case.lag_ports)
            .with_queue_pair_rate(case.per_queue_pair)
            .with_rate(case.per_port);
        let device = network.add_device_with(SimDeviceConfig::with_ports("sim0", vec![port]));
        let config = RdmaConfig::default().with_read_queue_pairs(case.read_queue_pairs);
        let [server, client] = [(); 2].map(|()| OnLoopback::new(&network, config.clone()));
        let listener = InprocListener::bind(name.to_owned()).unwrap();
        let probe = ProbeService::new(Probe::new().0);
        let server = Server::builder().upgrade(server).add_service(probe).build();
        tokio::spawn(server.serve_incoming(listener));
        let policy = UpgradePolicy::Require(client);
        let config = ClientConfig { policy, ..ClientConfig::default() };
        let channel = rpc_core::Channel::new(InprocConnector::new(name, config)).into();
        let rig = Self { network, device, channel };
        // The first call waits for the connection.
        download(&rig.channel, 0, 10).await;
        rig
    }

    /// Makes calls with large replies. Returns the bytes of replies per second.
    async fn rate(&self) -> f64 {
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let channel = self.channel.clone();
            callers.spawn(async move {
                for call in 0..CALLS {
                    download(&channel, caller * CALLS + call, LEN).await;
                }
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended.unwrap();
        }
        (CALLERS * CALLS * LEN) as f64 / start.elapsed().as_secs_f64()
    }
}

async fn download(channel: &Channel, seed: u64, len: u64) {
    let request = ProduceRequest { seed, len };
    let reply = ProbeStub::new(channel.clone()).produce(request).await.unwrap().into_inner();
    assert!(reply.payload == payload(seed, usize::try_from(len).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn read_queue_pairs_add_up_rates() {
    for (read_queue_pairs, lag_ports, per_queue_pair, per_port, expected) in [
        // As fast as the port, by however many queue pairs.
        (1, 1, 0, RATE, RATE),
        (2, 1, 0, RATE, RATE),
        // One queue pair has one of the bonded ports, two have both.
        (1, 2, 0, RATE, RATE),
        (2, 2, 0, RATE, 2 * RATE),
        // A queue pair has less than the port.
        (1, 1, RATE, 4 * RATE, RATE),
        (2, 1, RATE, 4 * RATE, 2 * RATE),
        // Two share what is less than twice one.
        (2, 1, RATE, RATE * 3 / 2, RATE * 3 / 2),
    ] {
        let case = Case { read_queue_pairs, lag_ports, per_queue_pair, per_port };
        let rig = Rig::start(&format!("{case:?}"), case).await;
        let part = rig.rate().await / expected as f64;
        assert!((0.9..=1.0).contains(&part), "{case:?}: {part} of the expected rate");
        let counters = rig.network.counters();
        assert_eq!((counters.timeouts, counters.lost), (0, 0), "{case:?}: waiting is no loss");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lag_port_costs_time_and_no_call() {
    let (read_queue_pairs, lag_ports, per_queue_pair, per_port) = (2, 2, 0, RATE);
    let case = Case { read_queue_pairs, lag_ports, per_queue_pair, per_port };
    let rig = Rig::start("lag-loss", case).await;
    let lose = async {
        sleep(Duration::from_millis(50)).await;
        rig.device.lose_lag_port(2);
    };
    let (disturbed, ()) = tokio::join!(rig.rate(), lose);
    let counters = rig.network.counters();
    assert!(counters.lost > 0 && counters.timeouts > 0, "{counters:?}");
    let rate = rig.rate().await;
    assert!(disturbed < 1.5 * RATE as f64 && rate <= RATE as f64, "{disturbed} {rate}");
    rig.device.link_up();
    assert!(rig.rate().await > 1.8 * RATE as f64, "both ports are back");
    assert_eq!(rig.channel.info().unwrap().transport, "rdma");
}
