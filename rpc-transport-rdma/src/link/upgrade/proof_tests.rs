//! Proofs of whole paths: packets that get lost, wrong bytes, and peers without such a proof.

use rpc_core::handoff::Handoff;
use rpc_core::transport::{Admission, Delivery, Handler, OutFrame, Transport};
use rpc_core::wire::{HEADER_LEN, ProtocolError};

use super::tests::oob::Stream;
use super::*;
use crate::PortChoice;
use crate::sim::{SimDevice, SimDeviceConfig, SimFaults, SimNetwork};
use crate::verbs::{GidKind, LinkLayer};

/// Longer than a slot.
const LARGE_LEN: usize = 100_000;

fn address(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

fn between(local: u8, peer: u8) -> Addresses {
    let at = |host| Some((address(host), 7000).into());
    Addresses { local: at(local), peer: at(peer), ..Addresses::default() }
}

/// Counts frames, and keeps the reason of the end.
#[derive(Debug, Default)]
struct Counting {
    frames: std::sync::atomic::AtomicUsize,
    closed: parking_lot::Mutex<Option<CloseReason>>,
}

impl Counting {
    fn frames(&self) -> usize {
        self.frames.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Handler for Counting {
    fn handle_announced(&self, _: &[u8; HEADER_LEN], _: u64) -> Result<Admission, ProtocolError> {
        Ok(Admission::Accept { deadline: None, detacher: None })
    }

    fn handle_frame(
        &self,
        _: bytes::Bytes,
        _: Delivery,
        _: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        self.frames.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn handle_withheld(
        &self,
        _: &[u8; HEADER_LEN],
        _: rpc_core::transport::Withheld,
    ) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        *self.closed.lock() = Some(reason);
    }
}

/// A client and servers, each with a device: host 1 and the others.
struct Cluster {
    network: SimNetwork,
    devices: Vec<SimDevice>,
    client: RdmaUpgrade,
    servers: Vec<RdmaUpgrade>,
}

/// Both ends of a path in use, the client's first.
struct Joined {
    transports: [Box<dyn Transport>; 2],
    heard: [Arc<Counting>; 2],
}

impl Cluster {
    fn new(config: &RdmaConfig) -> Self {
        Self::with(config, |_, _| {})
    }

    fn with(config: &RdmaConfig, change: impl Fn(u8, &mut SimDeviceConfig)) -> Self {
        let network = SimNetwork::new(3);
        let mut devices = Vec::new();
        let upgrades = [1, 2, 3].map(|host| {
            let mut device = SimDeviceConfig::new(&format!("sim{host}"), &[address(host)]);
            change(host, &mut device);
            devices.push(network.add_device_with(device));
            let config = config.clone().with_devices(vec![format!("sim{host}")]);
            RdmaUpgrade::with_provider(Box::new(network.provider()), config)
        });
        let [client, servers @ ..] = upgrades;
        Self { network, devices, client, servers: servers.into() }
    }

    /// The traffic classes of all queue pairs, in the order of their making.
    fn classes(&self) -> Vec<u8> {
        self.network.fabric().enter(|state| {
            let paths = state.queue_pairs.values().filter_map(|it| it.path());
            paths.map(|path| path.traffic_class).collect()
        })
    }

    fn narrow(&self, from: u8, to: u8) {
        self.network.set_path_mtu(address(from), address(to), Mtu::B1024);
    }

    /// Connects the client to a host, as a handshake does.
    async fn connect(&self, host: u8) -> Result<Joined, String> {
        self.connect_by(host, |blob| blob, |blob| blob).await
    }

    async fn connect_by(
        &self,
        host: u8,
        edit_offer: impl Fn(Vec<u8>) -> Vec<u8>,
        edit_answer: impl Fn(Vec<u8>) -> Vec<u8>,
    ) -> Result<Joined, String> {
        let server = &self.servers[usize::from(host) - 2];
        let reason = |declined: Declined| declined.reason;
        let offer = self.client.offer(&between(1, host)).map_err(reason)?;
        let accepted = server.accept(&between(host, 1), &edit_offer(offer.blob()));
        let (answer, server) = accepted.map_err(reason)?;
        let mut client = offer.connect(&edit_answer(answer)).map_err(reason)?;
        client.prove().await.map_err(reason)?;
        assert!(server.is_probed());
        let (left, right) = tokio::io::duplex(64);
        let heard = [(); 2].map(|()| Arc::new(Counting::default()));
        let transports = [
            client.into_transport(Box::new(Stream(left))),
            server.into_transport(Box::new(Stream(right))),
        ];
        for (transport, heard) in transports.iter().zip(&heard) {
            transport.start(Arc::clone(heard) as _);
        }
        Ok(Joined { transports, heard })
    }
}

impl Joined {
    /// Sends a frame of this length each way; false if one does not arrive in time.
    async fn exchange(&self, len: usize) -> bool {
        let frame = [&[1, 0][..], &vec![1; len - 2]].concat();
        let before = self.heard.each_ref().map(|heard| heard.frames());
        for transport in &self.transports {
            let sent = transport.send(OutFrame::new(len, None, &mut &frame[..])).await;
            if sent.is_err() {
                return false;
            }
        }
        let arrive = async {
            while (0..2).any(|end| self.heard[end].frames() == before[end]) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), arrive).await.is_ok()
    }

    fn ends(&self) -> Vec<Option<CloseReason>> {
        self.heard.iter().map(|heard| heard.closed.lock().clone()).collect()
    }
}

fn scopes() -> [RdmaConfig; 2] {
    [RkeyScope::Region, RkeyScope::Window]
        .map(|rkey_scope| RdmaConfig { rkey_scope, ..RdmaConfig::default() })
}

#[tokio::test(start_paused = true)]
async fn a_narrow_path_is_used_at_its_mtu_after_one_retry() {
    for config in scopes() {
        for ways in [&[(1, 2), (2, 1)][..], &[(1, 2)], &[(2, 1)]] {
            let cluster = Cluster::new(&config);
            ways.iter().for_each(|(from, to)| cluster.narrow(*from, *to));
            let (mut attempts, mut reasons) = (1, Vec::new());
            let joined = loop {
                match cluster.connect(2).await {
                    Ok(joined) => break joined,
                    Err(reason) => reasons.push(reason),
                }
                attempts += 1;
                assert!(attempts < 5, "{reasons:?}");
            };
            // Ten minutes of traffic.
            for second in 0..600 {
                for len in [4000, LARGE_LEN] {
                    let has_arrived = joined.exchange(len).await;
                    assert!(has_arrived, "{len} bytes in second {second}: {:?}", joined.ends());
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(joined.ends(), [None, None]);
            assert_eq!(attempts, 2, "{reasons:?}");
            // A server that lost its own message learns it from its device, and the client by time.
            let is_client = ways.contains(&(1, 2));
            let step = if is_client { "4352 bytes do not" } else { "of the peer do not arrive" };
            assert!(reasons[0].contains(step), "{reasons:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wide_path_is_proven_at_once_at_its_ports_mtu() {
    for config in scopes() {
        let cluster = Cluster::new(&config);
        let joined = cluster.connect(2).await.unwrap();
        assert!(joined.exchange(LARGE_LEN).await && joined.exchange(4000).await);
        assert_eq!(cluster.network.violations(), []);
    }
}

/// A transfer's number comes again after 4,096 offers, that of the proof as any.
#[tokio::test(start_paused = true)]
async fn a_frame_under_the_number_of_the_proof_arrives() {
    const NUMBERS: usize = 4096;
    for config in scopes() {
        let cluster = Cluster::new(&config);
        let joined = cluster.connect(2).await.unwrap();
        let len = config.slot_len as usize + 1;
        for count in 0..NUMBERS + 2 {
            assert!(joined.exchange(len).await, "frame {count}: {:?}", joined.ends());
            // Released, so that the next offer is at the same index.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(joined.ends(), [None, None]);
    }
}

/// Peers of a version without the proof neither send nor expect one.
#[tokio::test(start_paused = true)]
async fn peers_without_the_proof_are_proven_by_a_probe() {
    let without = |blob: Vec<u8>| {
        let params = ConnParams::decode(&blob).unwrap();
        ConnParams { capabilities: Capabilities(0), traffic_class: None, ..params }.encode()
    };
    let as_is = |blob| blob;
    for config in scopes() {
        let cluster = Cluster::new(&config);
        // An old client's server, then an old server's client: neither hears of a capability.
        for joined in [
            cluster.connect_by(2, without, without).await,
            cluster.connect_by(3, as_is, without).await,
        ] {
            let joined = joined.unwrap();
            assert!(joined.exchange(4000).await && joined.exchange(LARGE_LEN).await);
            assert_eq!(joined.ends(), [None, None]);
        }
    }
}

/// A program without large frames may have no memory for them.
#[tokio::test(start_paused = true)]
async fn small_budgets_are_proven_by_a_probe() {
    let slot_len = RdmaConfig::default().slot_len.into();
    for config in [
        RdmaConfig { max_source_bytes: slot_len, ..RdmaConfig::default() },
        RdmaConfig { max_sink_bytes: slot_len, ..RdmaConfig::default() },
    ] {
        let cluster = Cluster::new(&config);
        let joined = cluster.connect(2).await.unwrap();
        assert!(joined.exchange(4000).await);
    }
    // The least that can have a proof has it, with READs on the most queue pairs.
    let config = RdmaConfig {
        max_source_bytes: 16 << 10,
        max_sink_bytes: 128 << 10,
        max_read_bytes: 1,
        max_read_len: 1 << 10,
        read_queue_pairs: 8,
        ..RdmaConfig::default()
    };
    assert!(is_affordable(&config));
    let cluster = Cluster::new(&config);
    assert_eq!(cluster.connect(2).await.map(|_| ()), Ok(()));
}

/// Memory that others use says nothing of a path.
#[tokio::test(start_paused = true)]
async fn want_of_memory_neither_narrows_nor_pauses_a_path() {
    let (source, sink) = (64_usize << 10, 256_usize << 10);
    let config = RdmaConfig {
        max_source_bytes: source as u64,
        max_sink_bytes: sink as u64,
        ..RdmaConfig::default()
    };
    for is_client in [true, false] {
        for is_source in [true, false] {
            let cluster = Cluster::new(&config);
            let joined = cluster.connect(2).await.unwrap();
            // The last release of the proof is on its way.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let short = if is_client { &cluster.client } else { &cluster.servers[0] };
            let held = short.workers.map(|_, _, worker| match is_source {
                true => worker.sources.try_take(source).unwrap(),
                false => worker.sinks.try_take(sink).unwrap(),
            });
            for _ in 0..2 {
                let reason = cluster.connect(2).await.map(|_| ()).unwrap_err();
                assert!(reason.contains("no memory for"), "{is_client} {is_source}: {reason}");
            }
            drop(held);
            let again = cluster.connect(2).await.unwrap();
            let mtu = |joined: &Joined| joined.transports[0].path().unwrap().mtu;
            assert_eq!((mtu(&joined), mtu(&again)), (4096, 4096));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_bytes_pause_their_pair_alone() {
    for faults in [
        SimFaults { short_read: 1.0, ..SimFaults::default() },
        SimFaults { corrupt_read: 1.0, ..SimFaults::default() },
        SimFaults { stale_read: 1.0, ..SimFaults::default() },
    ] {
        wrong_bytes_pause_their_pair(faults).await;
    }
}

async fn wrong_bytes_pause_their_pair(faults: SimFaults) {
    let cluster = Cluster::new(&RdmaConfig::default());
    cluster.network.set_faults(faults);
    let reason = cluster.connect(2).await.map(|_| ()).unwrap_err();
    assert!(reason.contains("READs bring wrong bytes"), "{reason}");
    cluster.network.set_faults(SimFaults::default());
    tokio::time::sleep(Duration::from_secs(10)).await;
    for upgrade in [&cluster.client, &cluster.servers[0]] {
        for lane in upgrade.lanes() {
            let LaneInfo { source_bytes_in_use, sink_bytes_in_use, read_bytes_in_use, .. } = lane;
            assert_eq!((source_bytes_in_use, sink_bytes_in_use, read_bytes_in_use), (0, 0, 0));
            assert_eq!((lane.send_slots_in_use, lane.connection_count), (0, 0));
        }
    }
    let paused = cluster.connect(2).await.map(|_| ()).unwrap_err();
    assert!(paused.contains("tried again in 50 s") && paused.contains("10.0.0.2"), "{paused}");
    assert!(cluster.connect(3).await.is_ok(), "another peer is not concerned");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(cluster.connect(2).await.is_ok());
}

/// Memory of earlier proofs is used again, and may have the right bytes.
#[tokio::test(start_paused = true)]
async fn a_stale_read_is_found_after_earlier_proofs() {
    let cluster = Cluster::new(&RdmaConfig::default());
    for host in [2, 2, 3] {
        drop(cluster.connect(host).await.unwrap());
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    cluster.network.set_faults(SimFaults { stale_read: 1.0, ..SimFaults::default() });
    for host in [2, 3] {
        let reason = cluster.connect(host).await.map(|_| ()).unwrap_err();
        assert!(reason.contains("READs bring wrong bytes"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_without_packets_is_not_paused() {
    let cluster = Cluster::new(&RdmaConfig::default());
    cluster.network.set_reach(crate::sim::SimReach::SameSubnet { prefix: 32 });
    for _ in 0..2 {
        let reason = cluster.connect(2).await.map(|_| ()).unwrap_err();
        assert!(!reason.contains("tried again"), "{reason}");
    }
    cluster.network.set_reach(crate::sim::SimReach::All);
    assert!(cluster.connect(2).await.is_ok());
}

/// A VLAN on a port of jumbo frames.
#[tokio::test(start_paused = true)]
async fn the_mtu_is_that_of_the_gids_interface() {
    let cluster = Cluster::with(&RdmaConfig::default(), |host, device| {
        (device.ports[0].gids[0].interface, device.ports[0].gids[0].interface_mtu) =
            (host.into(), if host == 1 { 1500 } else { 9000 });
    });
    [(1, 2), (2, 1)].iter().for_each(|(from, to)| cluster.narrow(*from, *to));
    let joined = cluster.connect(2).await.expect("at the first attempt");
    assert!(joined.exchange(LARGE_LEN).await);
}

/// A peer's proof takes memory of a few packets for each queue pair, whatever it says.
#[tokio::test]
async fn a_proof_of_wrong_length_costs_its_connection() {
    use crate::proto::wire::{MessageKind, RTS_LEN_MAX, Rts, RtsSegment};
    use crate::verbs::{RemoteKey, RemoteMemory};
    let long =
        RtsSegment { memory: RemoteMemory { address: 4096, key: RemoteKey(1) }, len: 1 << 30 };
    let short = RtsSegment { len: 100, ..long };
    for segments in [vec![long], vec![short, long], vec![short, RtsSegment { len: 99, ..long }]] {
        let offend = async |bad: &super::tests::End| {
            let mut body = [0; RTS_LEN_MAX];
            let offer = Rts { head: vec![0; HEADER_LEN + 8], segments: segments.clone() };
            let len = offer.write(&mut body);
            bad.say(MessageKind::Probe, &[]);
            bad.say(MessageKind::Proof { transfer: 1 }, &body[..len]);
        };
        super::tests::costs_its_connection(offend, "length of the proof").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_class_has_its_clients() {
    for (client, server, expected) in [
        (None, None, [106, 106]),
        (Some(8), None, [8, 8]),
        (None, Some(16), [106, 16]),
        (Some(8), Some(16), [8, 16]),
    ] {
        let hardware = |host, device: &mut SimDeviceConfig| {
            device.ports[0].traffic_class = if host == 1 { 106 } else { 0 };
        };
        let mut cluster = Cluster::with(&RdmaConfig::default(), hardware);
        cluster.client.config.connect.traffic_class = client;
        cluster.servers[0].config.connect.traffic_class = server;
        let joined = cluster.connect(2).await.unwrap();
        let paths = joined.transports.each_ref().map(|it| it.path().unwrap());
        let [ours, theirs] = expected;
        assert_eq!(paths.map(|path| path.traffic_class), expected);
        assert_eq!(paths.map(|path| path.peer_traffic_class), [Some(theirs), Some(ours)]);
        // Those of READs have it, too.
        assert_eq!(cluster.classes(), [[ours; 3], [theirs; 3]].concat());
    }
}

/// Ends on ports of class 106, and a network that loses packets of others.
fn lossy_cluster(lossy_class: f64, classes: [Option<u8>; 2]) -> Cluster {
    let mut cluster = Cluster::with(&RdmaConfig::default(), |_, device| {
        device.ports[0].traffic_class = 106;
    });
    [
        cluster.client.config.connect.traffic_class,
        cluster.servers[0].config.connect.traffic_class,
    ] = classes;
    cluster.network.set_faults(SimFaults { lossy_class, ..SimFaults::default() });
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_class_of_the_port_rides_lossless() {
    // The other has the same DSCP.
    for class in [None, Some(104)] {
        let cluster = lossy_cluster(1.0, [class; 2]);
        let joined = cluster.connect(2).await.unwrap();
        assert!(joined.exchange(4000).await && joined.exchange(LARGE_LEN).await);
        let counters = cluster.network.counters();
        assert_eq!((counters.lost, counters.timeouts), (0, 0));
        assert!(counters.sent_by_class.keys().eq([&class.unwrap_or(106)]), "{counters:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_class_meets_losses() {
    // The server has its client's, or one of its own for answers and what it sends.
    for (classes, lossy) in [([Some(8), None], 8), ([None, Some(16)], 16)] {
        let cluster = lossy_cluster(1.0, classes);
        let reason = cluster.connect(2).await.map(|_| ()).unwrap_err();
        assert!(reason.contains("does not answer"), "{classes:?}: {reason}");
        let cluster = lossy_cluster(0.2, classes);
        let joined = cluster.connect(2).await.unwrap();
        for _ in 0..10 {
            assert!(joined.exchange(4000).await && joined.exchange(LARGE_LEN).await);
        }
        let counters = cluster.network.counters();
        assert!(counters.lost_by_class.keys().eq([&lossy]), "{counters:?}");
        assert!(counters.lost_by_class[&lossy] < counters.sent_by_class[&lossy]);
        assert!(counters.timeouts > 0, "{counters:?}");
    }
}

fn infiniband(host: u8, device: &mut SimDeviceConfig) {
    let port = &mut device.ports[0];
    (port.link_layer, port.lid) = (LinkLayer::InfiniBand, host.into());
    port.gids[0].kind = GidKind::InfiniBand;
}

fn nearest() -> RdmaConfig {
    RdmaConfig { port_choice: PortChoice::Nearest, ..RdmaConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn both_ends_send_a_global_header_if_one_needs_it() {
    for needing in [1, 2, 3] {
        let cluster = Cluster::with(&nearest(), |host, device| {
            infiniband(host, device);
            device.ports[0].needs_global_route = host == needing;
        });
        let joined = cluster.connect(2).await.unwrap();
        assert!(joined.exchange(LARGE_LEN).await, "{needing}");
        let paths = |state: &mut crate::sim::state::NetworkState| {
            let paths = state.queue_pairs.values().filter_map(|it| it.path());
            paths.map(|path| path.is_global).collect::<Vec<_>>()
        };
        assert_eq!(cluster.network.fabric().enter(paths), [needing < 3; 6]);
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_decide_about_a_path_before_it_is_made() {
    for (here, there, expected) in [
        (vec![0x7fff, 0x8005], vec![0x8005], None),
        (vec![0x8005], vec![0x0005], None),
        (vec![0x0005], vec![0x0005], Some("0x0005 here, 0x0005 at the peer")),
        (vec![0x8005], vec![0x8006], Some("the partitions do not match")),
    ] {
        let cluster = Cluster::with(&nearest(), |host, device| {
            infiniband(host, device);
            let keys = if host == 1 { &here } else { &there };
            device.ports[0].partition_keys.clone_from(keys);
        });
        let reason = cluster.connect(2).await.err();
        let is_expected = match (&reason, expected) {
            (Some(reason), Some(text)) => reason.contains(text),
            (reason, text) => reason.is_none() && text.is_none(),
        };
        assert!(is_expected, "{here:x?} {there:x?}: {reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_partitions_is_looked_up() {
    let cluster = Cluster::with(&nearest(), infiniband);
    let _joined = cluster.connect(2).await.unwrap();
    let partition = || {
        let offer = cluster.client.offer(&between(1, 2)).unwrap();
        ConnParams::decode(&offer.blob()).unwrap().endpoint.partition_key
    };
    assert_eq!(partition(), Some(0xffff));
    cluster.devices[0].enter(|state, index| {
        state.devices[index].config.ports[0].partition_keys = vec![0x8005];
        let kind = crate::AsyncEventKind::Other(12);
        let event = crate::verbs::AsyncEvent { kind, port: Some(1), queue_pair_number: None };
        state.raise_in_all(index, event);
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(partition(), Some(0x8005));
}

/// A cable that is seated anew: packets get lost, and the queue pairs send them again.
#[tokio::test(start_paused = true)]
async fn a_short_flap_ends_no_connection() {
    let cluster = Cluster::new(&RdmaConfig::default());
    let joined = cluster.connect(2).await.unwrap();
    for _ in 0..20 {
        cluster.devices[1].flap(Duration::from_millis(100));
        assert!(joined.exchange(4000).await && joined.exchange(LARGE_LEN).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(joined.ends(), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_long_flap_ends_idle_connections_with_the_reason() {
    let cluster = Cluster::new(&RdmaConfig::default());
    let joined = cluster.connect(2).await.unwrap();
    // Grants are still on their way, and a queue pair with traffic gives up sooner.
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.devices[1].flap(Duration::from_secs(3));
    tokio::time::sleep(Duration::from_millis(1900)).await;
    assert_eq!(joined.ends(), [None, None], "the grace is not over");
    let declined = cluster.connect(2).await.map(|_| ()).unwrap_err();
    assert!(declined.contains("not active"), "{declined}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let server = joined.ends()[1].clone().map(|reason| reason.to_string()).unwrap_or_default();
    assert!(server.contains("port 1 of sim2 went down (PortError) for 2s"), "{server}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(cluster.connect(2).await.is_ok(), "the port is back");
}
