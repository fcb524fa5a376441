//! Connections that die in the middle of a message, thousands of them: the receive slots that they
//! were writing to are back or accounted for, whatever the device's driver does, and others are
//! served. On simulated devices and a paused clock.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::rdma::LaneInfo;
use farcall::sim::{SimFaults, SimNetwork};
use farcall::{Keepalive, RdmaConfig, Server};
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{OnLoopback, Probe, payload};
use rpc_core::client::ClientConfig;
use rpc_core::connect::{Upgrade as _, UpgradePolicy};
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_transport_rdma::sim::{SimCensus, SimDeviceConfig, lab};
use rpc_transport_rdma::verbs::{ReceiveDrain, ReceiveOrder};

/// Connections that die: twice what a lane has slots.
const DEATHS: usize = 2_000;

/// Every so many deaths others are served.
const CALL_INTERVAL: usize = 40;

/// Between two deaths, so that not all wait for their device at once.
const DEATH_INTERVAL: Duration = Duration::from_millis(10);

/// Of the simulation's time, for one call: far longer than it takes, and bounded.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The specified behavior, on a device that is known to take receives in order.
const ORDERED: ReceiveDrain = {
    let mut drain = ReceiveDrain::SPECIFIED;
    drain.order = ReceiveOrder::Posted;
    drain
};

/// A driver in words, what farcall knows of it, and what it does.
type DriverCase = (&'static str, ReceiveDrain, fn(&mut SimFaults));

/// The behavior of drivers, each alone and then all together.
const DRIVERS: [DriverCase; 6] = [
    ("as specified", ORDERED, |_| ()),
    ("purges", ORDERED, |faults| faults.purge_on_destroy = 1.0),
    ("is late", ORDERED, |faults| {
        (faults.purge_on_destroy, faults.late_last_receive) = (1.0, 1.0);
    }),
    ("says nothing", ORDERED, |faults| faults.missing_last_receive = 1.0),
    ("loses half messages", ReceiveDrain::LEAKY, |faults| faults.lost_receive = 1.0),
    ("does all of it", ReceiveDrain::LEAKY, |faults| {
        faults.purge_on_destroy = 0.5;
        faults.late_last_receive = 0.3;
        faults.missing_last_receive = 0.3;
        faults.lost_receive = 0.5;
    }),
];

/// Too late to be waited for, and not known to keep the order: what it loses is lost for good.
const UNKNOWN: DriverCase = ("is late, of unknown order", ReceiveDrain::SPECIFIED, |faults| {
    (faults.purge_on_destroy, faults.late_last_receive) = (1.0, 1.0);
    faults.last_receive_delay_max = Duration::from_secs(60);
});

/// A server, and what may connect to it.
struct Scene {
    network: SimNetwork,
    faults: SimFaults,
    server: Arc<OnLoopback>,
    client: Arc<OnLoopback>,
    name: String,
}

impl Scene {
    fn new(drain: ReceiveDrain, change: fn(&mut SimFaults), read_queue_pairs: u8) -> Self {
        let network = SimNetwork::new(1);
        network.panic_on_violation();
        let mut device = SimDeviceConfig::new("sim0", &[[127, 0, 0, 1].into()]);
        device.receive_drain = drain;
        network.add_device_with(device);
        let mut faults = SimFaults::default();
        change(&mut faults);
        network.set_faults(faults.clone());
        let upgrade = || {
            let mut config = RdmaConfig::default();
            config.read_queue_pairs = read_queue_pairs;
            config.spin = Duration::ZERO;
            OnLoopback::new(&network, config)
        };
        // Tests of one process share the names of listeners.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rdma-deaths-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (server, client) = (upgrade(), upgrade());
        let listener = InprocListener::bind(name.clone()).unwrap();
        let probe = ProbeService::new(Probe::new().0);
        // Pings would be cut as well, and not only what dies.
        let builder = Server::builder().keepalive(Keepalive::off()).upgrade(server.clone());
        let serving = builder.add_service(probe).build();
        tokio::spawn(serving.serve_incoming(listener));
        Self { network, faults, server, client, name }
    }

    fn channel(&self) -> ProbeStub {
        let policy = UpgradePolicy::Require(self.client.clone());
        let config = ClientConfig::with_settings(|it| it.keepalive = Keepalive::off());
        let config = ClientConfig { policy, ..config };
        ProbeStub::new(rpc_core::Channel::new(InprocConnector::new(&self.name, config)).into())
    }

    /// A peer connects and goes in the middle of its first message.
    async fn die(&self) {
        let addresses = OnLoopback::addresses();
        let offer = self.client.offer(&addresses).unwrap();
        let (answer, accepted) = self.server.accept(&addresses, &offer.blob()).unwrap();
        let mut joined = offer.connect(&answer).unwrap();
        let mut faults = self.faults.clone();
        faults.cut_transfer = 1.0;
        self.network.set_faults(faults);
        assert!(joined.prove().await.is_err(), "the probe is cut");
        self.network.set_faults(self.faults.clone());
        drop((joined, accepted));
        tokio::time::sleep(DEATH_INTERVAL).await;
    }
}

async fn call(stub: &ProbeStub) {
    let sent = payload(1, 1000);
    let request = EchoRequest { payload: sent.clone(), ..Default::default() };
    let answer = tokio::time::timeout(CALL_LIMIT, stub.echo(request)).await;
    let answer = answer.expect("an answer in time").unwrap().into_inner();
    assert!(answer.payload == sent);
    // What the two ends say to each other after a call is not cut either.
    tokio::time::sleep(DEATH_INTERVAL).await;
}

/// Runs a scene to its end, on a clock that is paused, and sees that nothing is left of it.
fn run<T>(scene: impl FnOnce() -> Scene, test: impl AsyncFnOnce(&Scene) -> T) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let (network, result) = runtime.block_on(async {
        let scene = scene();
        let result = test(&scene).await;
        (scene.network.clone(), result)
    });
    drop(runtime);
    assert_eq!(network.violations(), []);
    assert_eq!(lab::census(&network), SimCensus::default(), "something is left on the device");
    result
}

/// The server's only lane.
fn lane(scene: &Scene) -> LaneInfo {
    let mut lanes = scene.server.lanes();
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes.remove(0)
}

#[test]
fn two_thousand_deaths_cost_a_lane_no_slot_whatever_the_driver() {
    for (text, drain, change) in DRIVERS {
        run(
            || Scene::new(drain, change, 0),
            async |scene| {
                let stub = scene.channel();
                call(&stub).await;
                for count in 1..=DEATHS {
                    scene.die().await;
                    if count % CALL_INTERVAL == 0 {
                        call(&stub).await;
                    }
                }
                // Until the last of them has ended, which waits for its device a second at most.
                tokio::time::sleep(Duration::from_secs(3)).await;
                call(&stub).await;
                call(&stub).await;
                call(&scene.channel()).await;
                let LaneInfo { activity, missing_slots, connection_count, .. } = lane(scene);
                let (lost, reclaimed) = (activity.slots_lost, activity.slots_reclaimed);
                println!("{text}: {lost} lost, {reclaimed} used again, {missing_slots} missing");
                assert!(connection_count <= 2);
                assert_eq!((reclaimed, missing_slots), (lost, 0), "{text}");
                assert!(lost >= scene.network.counters().lost_receives, "{text}");
            },
        );
    }
}

#[test]
fn unfinished_messages_wear_lanes_but_exclude_no_client() {
    for (text, drain, change) in [DRIVERS[4], DRIVERS[5], UNKNOWN] {
        run(
            || Scene::new(drain, change, 2),
            async |scene| {
                for _ in 0..DEATHS {
                    scene.die().await;
                    assert!(scene.server.lanes().len() <= 2);
                }
                call(&scene.channel()).await;
                let lanes = scene.server.lanes();
                let missing: Vec<_> = lanes.iter().map(|lane| lane.missing_slots).collect();
                println!("{text}: {missing:?} slots missing");
            },
        );
    }
}

/// A connection that has queue pairs which never receive may have any of the receives that died:
/// they stay in doubt as long as it lives, and new connections get another lane.
#[test]
fn a_worn_lane_keeps_its_connections_and_takes_no_new_ones() {
    let (_, drain, change) = DRIVERS[4];
    run(
        || Scene::new(drain, change, 2),
        async |scene| {
            let stub = scene.channel();
            call(&stub).await;
            for _ in 0..DEATHS / 10 {
                scene.die().await;
                assert!(scene.server.lanes().len() <= 2);
            }
            let lanes = scene.server.lanes();
            assert_eq!(lanes.len(), 2, "{lanes:?}");
            let worn = &lanes[0];
            assert!(worn.missing_slots > worn.receive_slots / 10, "{worn:?}");
            assert!(worn.missing_slots < worn.receive_slots / 5, "it takes no more: {worn:?}");
            assert_eq!(worn.connection_count, 1);
            for _ in 0..3 {
                call(&stub).await;
                call(&scene.channel()).await;
            }
            // Its last connection ends, and with it the lane.
            drop(stub);
            let one = async {
                while scene.server.lanes().len() > 1 {
                    call(&scene.channel()).await;
                }
            };
            tokio::time::timeout(CALL_LIMIT, one).await.expect("one lane is left");
        },
    );
}
