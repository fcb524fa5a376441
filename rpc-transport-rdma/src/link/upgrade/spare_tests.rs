//! Queue pairs that a lane makes ahead: handshakes take them, and nothing is left of them.

use super::*;
use crate::sim::{SimDevice, SimDeviceConfig, SimFaults, SimNetwork, SimQueueMemory, SimVerb};

const HERE: [u8; 4] = [10, 0, 0, 1];
/// Time of the simulated firmware for a queue pair.
const CREATE: Duration = Duration::from_millis(20);
/// Far longer than it takes for all spare queue pairs of a lane.
const SETTLED: Duration = Duration::from_secs(5);

struct Rig {
    network: SimNetwork,
    device: SimDevice,
    upgrade: RdmaUpgrade,
}

impl Rig {
    fn new() -> Self {
        Self::under(None)
    }

    /// A device whose queues are locked memory, and the limit on that.
    fn under(limit: Option<u64>) -> Self {
        let network = SimNetwork::new(5);
        network.panic_on_violation();
        let mut config = SimDeviceConfig::new("sim", &[HERE.into()]);
        config.queue_memory = SimQueueMemory::Mlx5;
        let device = network.add_device_with(config);
        limited(&network, limit);
        let upgrade =
            RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
        Self { network, device, upgrade }
    }

    fn prepare(&self) -> LocalEnd {
        let at = Some((HERE, 7000).into());
        let addresses = Addresses { local: at, peer: at, ..Addresses::default() };
        self.upgrade.prepare(&addresses, None).map_err(|declined| declined.reason).unwrap()
    }

    /// Connects an end that is its own peer.
    fn connect(&self) -> ConnectedEnd {
        let prepared = self.prepare();
        let peer = prepared.conn_params();
        prepared.join(&peer).map_err(|declined| declined.reason).unwrap()
    }

    /// The queue pairs of the device, those of connections included.
    fn queue_pairs(&self) -> usize {
        self.device.enter(|state, _| state.queue_pairs.len())
    }

    /// Ends the lane, which leaves nothing behind.
    async fn end(self) {
        let Self { network, device, upgrade } = self;
        drop(upgrade);
        tokio::time::sleep(SETTLED).await;
        assert_eq!(device.enter(|state, _| state.queue_pairs.len()), 0);
        assert_eq!(network.census().contexts, 0, "the device is closed");
    }

    /// Returns true if a handshake has waited for the firmware since the last look.
    fn has_waited(&self) -> bool {
        self.device
            .enter(|state, index| std::mem::take(&mut state.devices[index].commands_at_once) > 0)
    }
}

fn limited(network: &SimNetwork, limit: Option<u64>) {
    network.set_faults(SimFaults { memory_lock_bytes: limit, ..SimFaults::default() });
}

#[tokio::test(start_paused = true)]
async fn a_warm_lane_makes_no_queue_pair_in_a_handshake() {
    let rig = Rig::new();
    let mut ends = vec![rig.connect()];
    rig.device.set_command_delay(SimVerb::CreateQueuePair, CREATE);
    for count in 2..6 {
        tokio::time::sleep(SETTLED).await;
        ends.push(rig.connect());
        assert!(!rig.has_waited(), "connection {count} has waited for the firmware");
    }
}

#[tokio::test(start_paused = true)]
async fn a_declined_offer_gives_its_queue_pairs_back() {
    let rig = Rig::new();
    drop(rig.prepare());
    rig.device.set_command_delay(SimVerb::CreateQueuePair, CREATE);
    let _next = rig.prepare();
    assert!(!rig.has_waited(), "the next offer has waited for the firmware");
    assert_eq!(rig.queue_pairs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lane_without_a_connection_makes_no_spares() {
    let rig = Rig::new();
    let offer = rig.prepare();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3);
    drop(offer);
}

#[tokio::test(start_paused = true)]
async fn a_lane_keeps_spares_for_as_many_as_it_has_up_to_eight() {
    let rig = Rig::new();
    let mut ends = Vec::new();
    for count in 1..=12 {
        ends.push(rig.connect());
        tokio::time::sleep(SETTLED).await;
        assert_eq!(rig.queue_pairs(), 3 * (count + count.min(8)));
    }
}

#[tokio::test(start_paused = true)]
async fn no_spare_is_made_while_handshakes_are_under_way() {
    let rig = Rig::new();
    let _first = rig.connect();
    let other = rig.upgrade.workers.admission("sim").begin();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3);
    let _second = rig.connect();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 6);
    drop(other);
    let _third = rig.connect();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3 * 6, "the last handshake has them made");
}

#[tokio::test(start_paused = true)]
async fn a_refill_stops_for_a_handshake_that_comes() {
    let rig = Rig::new();
    let mut ends: Vec<_> = (0..8).map(|_| rig.connect()).collect();
    rig.device.set_command_delay(SimVerb::CreateQueuePair, CREATE);
    // The first two of 24.
    tokio::time::sleep(CREATE * 5 / 2).await;
    let other = rig.upgrade.workers.admission("sim").begin();
    tokio::time::sleep(SETTLED).await;
    assert!((25..=27).contains(&rig.queue_pairs()), "{}", rig.queue_pairs());
    drop(other);
    ends.push(rig.connect());
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3 * (9 + 8));
}

#[tokio::test(start_paused = true)]
async fn spares_end_with_their_lane() {
    let rig = Rig::new();
    let end = rig.connect();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 6);
    drop(end);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refill_keeps_no_lane_that_has_ended() {
    let rig = Rig::new();
    rig.device.set_command_delay(SimVerb::CreateQueuePair, Duration::from_micros(1));
    let end = rig.connect();
    rig.device.set_command_delay(SimVerb::CreateQueuePair, CREATE);
    tokio::time::sleep(CREATE / 2).await;
    drop(end);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_port_that_goes_down_has_no_spares() {
    let rig = Rig::new();
    let _end = rig.connect();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 6);
    rig.device.link_down();
    // Its connections have some time to return in.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.queue_pairs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_spare_serves_its_own_partition_alone() {
    let rig = Rig::new();
    let end = rig.connect();
    tokio::time::sleep(SETTLED).await;
    let worker = &end.connection.as_ref().unwrap().worker;
    let mut port = rig.prepare().queues.messages().port().clone();
    port.attributes.partition.index = 1;
    rig.device.set_command_delay(SimVerb::CreateQueuePair, Duration::from_micros(1));
    let _other =
        EndQueues::make(worker, &port, 7, false).map_err(|declined| declined.reason).unwrap();
    assert!(rig.has_waited());
    assert_eq!(rig.queue_pairs(), 6, "the spares that do not fit have made way");
}

#[tokio::test(start_paused = true)]
async fn little_lockable_memory_is_left_to_connections() {
    const MIB: u64 = 1 << 20;
    for (limit, spares) in [(Some(8 * MIB), 0), (Some(64 * MIB - 1), 0), (Some(64 * MIB), 3)] {
        let rig = Rig::under(limit);
        let _end = rig.connect();
        tokio::time::sleep(SETTLED).await;
        let each = if limit == Some(8 * MIB) { 2 } else { 3 };
        assert_eq!(rig.queue_pairs(), each + spares, "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn spares_that_cannot_be_made_are_made_later() {
    let rig = Rig::new();
    let _first = rig.connect();
    limited(&rig.network, Some(rig.network.census().locked_bytes));
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3);
    limited(&rig.network, None);
    let _second = rig.connect();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(rig.queue_pairs(), 3 * 4);
}
