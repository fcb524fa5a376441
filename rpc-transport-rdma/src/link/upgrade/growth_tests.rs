//! Devices whose lanes are full: others are made, on other completion vectors, and go again.

use super::*;
use crate::sim::{SimDevice, SimFaults, SimNetwork, SimVerb};

const PLACES: u32 = 256;

struct Rig {
    network: SimNetwork,
    upgrade: RdmaUpgrade,
    device: SimDevice,
}

impl Rig {
    fn new(config: RdmaConfig) -> Self {
        let network = SimNetwork::new(0);
        let device = network.add_device("sim", &[[10, 0, 0, 1].into()]);
        let upgrade = RdmaUpgrade::with_provider(Box::new(network.provider()), config);
        Self { network, upgrade, device }
    }

    fn try_prepare(&self) -> Result<LocalEnd, Declined> {
        let at = |address: [u8; 4]| Some((address, 7000).into());
        let (local, peer) = (at([10, 0, 0, 1]), at([10, 0, 0, 2]));
        self.upgrade.prepare(&Addresses { local, peer, ..Addresses::default() }, None)
    }

    fn prepare(&self) -> LocalEnd {
        self.try_prepare().map_err(|declined| declined.reason).unwrap()
    }

    /// The numbers of connections of the lanes.
    fn counts(&self) -> Vec<usize> {
        self.upgrade.lanes().iter().map(|lane| lane.connection_count).collect()
    }

    /// The entries of the lanes' completion queues, in the order in which they were made.
    fn capacities(&self) -> Vec<u32> {
        self.device.enter(|state, _| {
            state.completion_queues.values().map(|queue| queue.capacity).collect()
        })
    }

    /// The completion vectors of the lanes, in the order in which they were made.
    fn vectors(&self) -> Vec<u32> {
        self.device
            .enter(|state, _| state.completion_queues.values().map(|queue| queue.vector).collect())
    }
}

#[tokio::test]
async fn the_257th_connection_is_on_a_second_lane() {
    let rig = Rig::new(RdmaConfig::default());
    let mut ends: Vec<_> = (0..PLACES).map(|_| rig.prepare()).collect();
    assert_eq!(rig.counts(), [256]);
    ends.push(rig.prepare());
    assert_eq!(rig.counts(), [256, 1]);
    let [first, second] = rig.vectors().try_into().unwrap();
    assert_eq!(second, (first + 1) % 8);
    // As long as the first has little room, the second stays. It is used when the first is full.
    drop(ends.drain(255..).collect::<Vec<_>>());
    ends.push(rig.prepare());
    assert_eq!(rig.counts(), [256, 0]);
    ends.push(rig.prepare());
    assert_eq!(rig.counts(), [256, 1]);
    drop(ends.drain(100..).collect::<Vec<_>>());
    ends.push(rig.prepare());
    assert_eq!(rig.counts(), [101], "it is not needed any more");
}

#[tokio::test]
async fn connections_past_1024_of_a_device_are_lean() {
    let rig = Rig::new(RdmaConfig { lanes: Some(8), ..RdmaConfig::default() });
    let mut ends: Vec<_> = (0..1024).map(|_| rig.prepare()).collect();
    let read_ends = |end: &LocalEnd| end.conn_params().read_ends.len();
    assert!(ends.iter().all(|end| read_ends(end) == 2));
    let lean = rig.prepare();
    assert_eq!(read_ends(&lean), 1);
    // Its messages' queue pair has 50 requests and the drain WR, and that for READs 4.
    let claimed =
        |rig: &Rig| -> u32 { rig.upgrade.lanes().iter().map(|lane| lane.claimed_entries).sum() };
    let before = claimed(&rig);
    let other = rig.prepare();
    assert_eq!(claimed(&rig) - before, 50 + 1 + 4 + 1);
    drop((lean, other));
    ends.pop();
    assert_eq!(read_ends(&rig.prepare()), 2);
}

#[tokio::test(start_paused = true)]
async fn lanes_past_1024_connections_have_queues_for_lean_ones() {
    let rig = Rig::new(RdmaConfig::default());
    let mut ends: Vec<_> = (0..1024).map(|_| rig.prepare()).collect();
    ends.push(rig.prepare());
    // The slots, and for each of 256 connections its requests, its READs, and a drain WR for each
    // of its queue pairs.
    let [full, lean] = [1024 + 256 * (96 + 1 + 2 * (8 + 1)), 832 + 256 * (50 + 1 + 4 + 1)];
    assert_eq!(rig.capacities(), [full, full, full, full, lean]);
    // A lane that is made for fewer is as the first ones were.
    drop(ends.drain(100..).collect::<Vec<_>>());
    tokio::time::sleep(2 * TRIM_INTERVAL).await;
    assert_eq!(rig.capacities(), [full]);
    ends.extend((100..=256).map(|_| rig.prepare()));
    assert_eq!(rig.capacities(), [full; 2]);
}

#[tokio::test]
async fn lanes_of_the_configuration_lie_on_vectors_in_a_row() {
    let rig = Rig::new(RdmaConfig { lanes: Some(12), receive_slots: 64, ..RdmaConfig::default() });
    let ends: Vec<_> = (0..24).map(|_| rig.prepare()).collect();
    assert_eq!(rig.counts(), [2; 12]);
    let vectors = rig.vectors();
    let expected: Vec<_> = (0..12).map(|lane| (vectors[0] + lane) % 8).collect();
    assert_eq!(vectors, expected);
    drop(ends);
}

#[tokio::test]
async fn auto_lanes_are_as_many_as_processors_without_a_limit() {
    let lanes = |limit: Option<u64>| {
        let rig = Rig::new(RdmaConfig { lanes: None, receive_slots: 64, ..RdmaConfig::default() });
        rig.network.set_faults(SimFaults { memory_lock_bytes: limit, ..SimFaults::default() });
        let ends: Vec<_> = (0..9).map(|_| rig.prepare()).collect();
        let lanes = rig.counts().len();
        drop(ends);
        lanes
    };
    // The node of a device in software is not known.
    let processors = crate::device::Topology::current().processors_near("sim");
    assert_eq!(lanes(None), processors.min(8));
    assert_eq!(lanes(Some(1 << 30)), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_at_once_find_places_on_lanes_that_grow() {
    let config = RdmaConfig { max_connections: 8, receive_slots: 64, ..RdmaConfig::default() };
    let rig = Arc::new(Rig::new(config));
    let tasks = (0..100).map(|_| {
        let rig = Arc::clone(&rig);
        tokio::task::spawn_blocking(move || rig.prepare())
    });
    let mut ends = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        ends.push(task.await.unwrap());
    }
    assert_eq!(rig.counts().iter().sum::<usize>(), 100);
    assert_eq!(rig.counts().len(), 13, "{:?}", rig.counts());
    let devices = rig.upgrade.devices();
    assert_eq!((devices.len(), devices[0].lane_count), (1, 13), "all are watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_at_once_are_admitted_in_turn() {
    const CLIENTS: usize = 40;
    let network = SimNetwork::new(0);
    let [client, server] = [1, 2].map(|host| {
        let device = network.add_device(&format!("sim{host}"), &[[10, 0, 0, host].into()]);
        let upgrade =
            RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
        (device, Arc::new(upgrade))
    });
    let at = |host: u8| Some(([10, 0, 0, host], 7000).into());
    let offers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let addresses = Addresses { local: at(1), peer: at(2), ..Addresses::default() };
            client.1.offer(&addresses).map_err(|declined| declined.reason).unwrap()
        })
        .collect();
    // Each client needs three of them, and the firmware makes one at a time.
    server.0.set_command_delay(SimVerb::CreateQueuePair, Duration::from_millis(1));
    let blobs: Vec<_> = offers.iter().map(|offer| offer.blob()).collect();
    let accepting = blobs.into_iter().map(|blob| {
        let server = Arc::clone(&server.1);
        let addresses = Addresses { local: at(2), peer: at(1), ..Addresses::default() };
        tokio::task::spawn_blocking(move || server.accept(&addresses, &blob))
    });
    let mut accepted = Vec::new();
    for task in accepting.collect::<Vec<_>>() {
        let (_, candidate) = task.await.unwrap().map_err(|declined| declined.reason).unwrap();
        accepted.push(candidate);
    }
    assert_eq!(server.1.lanes()[0].connection_count, CLIENTS);
    let at_once = server.0.enter(|state, index| state.devices[index].commands_at_once);
    assert!((2..=8).contains(&at_once), "{at_once} handshakes waited for the firmware at once");
}

#[tokio::test(start_paused = true)]
async fn lanes_of_a_crowd_that_leaves_go_by_themselves() {
    let config = RdmaConfig { max_connections: 8, receive_slots: 64, ..RdmaConfig::default() };
    let rig = Rig::new(config);
    let ends: Vec<_> = (0..40).map(|_| rig.prepare()).collect();
    assert_eq!(rig.counts(), [8; 5]);
    drop(ends);
    tokio::time::sleep(2 * TRIM_INTERVAL).await;
    assert_eq!(rig.counts(), [0]);
}

#[tokio::test]
async fn a_lane_that_cannot_be_made_is_a_lane_that_is_full() {
    let config = RdmaConfig { max_connections: 8, receive_slots: 64, ..RdmaConfig::default() };
    let rig = Rig::new(config);
    let _ends: Vec<_> = (0..8).map(|_| rig.prepare()).collect();
    rig.network.set_faults(SimFaults { refused_registration: 1.0, ..SimFaults::default() });
    for _ in 0..3 {
        let declined = rig.try_prepare().map(drop).expect_err("there is no memory");
        assert!(declined.reason.contains("the lane is full"), "{}", declined.reason);
        assert!(declined.obstacle.can_pass());
    }
    assert_eq!(rig.network.counters().refused_registrations, 1, "it is not tried each time");
}
