//! Ports, their addresses, and the paths between them.

use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::sys::provider::{PortState, VerbsError};

const VXLAN: u32 = 7;
const BOND: u32 = 9;

fn address(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

/// Two ends of devices that the test makes, not connected yet.
fn rig(configs: [SimDeviceConfig; 2]) -> Rig {
    let network = SimNetwork::new(11);
    network.set_latency(Duration::ZERO..=Duration::ZERO);
    let ends = configs.map(|config| End::with(&network, config));
    Rig { network, ends }
}

fn config(host: u8) -> SimDeviceConfig {
    SimDeviceConfig::new(&format!("sim{host}"), &[address(host)])
}

pub(super) fn errno(error: &VerbsError) -> Option<i32> {
    match error {
        VerbsError::System { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

/// Lengths of READs that come back within no time.
fn passing(rig: &mut Rig, lens: &[u32]) -> Vec<u32> {
    let (source, sink) = (rig.ends[1].region(Access::Source), rig.ends[0].region(Access::Sink));
    let read = |len: &&u32| {
        let operation = RawOperation::Read(source.remote());
        rig.ends[0].post(operation, Some(sink.segment(0, **len))).unwrap();
        rig.ends[0].poll().iter().any(|completion| completion.status == 0)
    };
    let passing = lens.iter().take_while(read).copied().collect();
    // What is in flight still has the memory.
    std::mem::forget((source, sink));
    passing
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn packets_longer_than_the_path_get_lost() {
    let mut rig = Rig::new();
    rig.network.set_path_mtu(address(1), address(2), Mtu::B1024);
    assert_eq!(passing(&mut rig, &[1024, 6000]), [1024, 6000], "only requests go this way");
    rig.network.set_path_mtu(address(2), address(1), Mtu::B1024);
    assert_eq!(passing(&mut rig, &[1024, 1025]), [1024]);
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn packets_between_subnets_that_are_not_joined_get_lost() {
    let mut rig = Rig::new();
    rig.network.set_reach(SimReach::SameSubnet { prefix: 24 });
    assert_eq!(passing(&mut rig, &[10]), [10]);
    rig.network.set_reach(SimReach::SameSubnet { prefix: 31 });
    assert_eq!(passing(&mut rig, &[10]), [0; 0]);
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn packets_leave_by_the_interface_of_the_route() {
    let with = |interface| {
        let mut there = config(2);
        there.ports[0].gids = vec![
            SimGid::new(3, address(2), interface),
            SimGid::new(5, address(2), VXLAN + BOND - interface),
        ];
        let mut here = config(1);
        here.ports[0].gids[0] = SimGid::new(0, address(1), BOND);
        let mut rig = rig([here, there]);
        rig.network.route_to(address(1), BOND);
        // By the first entry, which is not at position 0.
        connect_at(&mut rig, [0, 3]);
        passing(&mut rig, &[10])
    };
    assert_eq!(with(BOND), [10]);
    assert_eq!(with(VXLAN), [0; 0]);
}

/// Connects the ends by the GIDs at these positions.
fn connect_at(rig: &mut Rig, positions: [u8; 2]) {
    let endpoint = |end: &End| Endpoint {
        queue_pair_number: end.queue_pair.number(),
        packet_sequence_number: 1,
        gid: end.gid,
        lid: 0,
        mtu: Mtu::B4096,
        reads: ReadDepths::Same(4),
        link_layer: LinkLayer::Ethernet,
        partition_key: None,
        needs_global_route: false,
    };
    let endpoints = rig.ends.each_ref().map(endpoint);
    for (index, end) in rig.ends.iter_mut().enumerate() {
        let path = PathAttributes {
            port: 1,
            gid_index: positions[index],
            packet_sequence_number: 1,
            remote: endpoints[1 - index],
            agreement: AGREEMENT,
            traffic_class: 0,
            is_global: true,
            serves_reads: true,
            options: ConnectOptions::default(),
        };
        end.queue_pair.connect(&path).unwrap();
    }
}

#[test]
fn a_device_has_several_ports_with_tables_of_their_own() {
    let network = SimNetwork::new(0);
    let mut config = config(1);
    config.ports.push(SimPort::new(&[address(2), address(3)]));
    config.ports[1].mtu = Mtu::B1024;
    network.add_device_with(config);
    let device = Device::open(&network.provider(), "sim1").unwrap();
    assert_eq!(device.attributes().port_count, 2);
    let table = device.gid_table().unwrap();
    let found: Vec<_> = table.iter().map(|it| (it.port, it.index, it.gid.to_ip())).collect();
    assert_eq!(found, [(1, 0, address(1)), (2, 0, address(2)), (2, 1, address(3))]);
    let mtus = [1, 2].map(|port| device.port(port).unwrap().active_mtu);
    assert_eq!(mtus, [Mtu::B4096, Mtu::B1024]);
    assert!(device.port(0).is_err() && device.port(3).is_err());
}

#[test]
fn a_query_fails_while_the_device_stays_open() {
    let network = SimNetwork::new(0);
    let sim = network.add_device("sim1", &[address(1)]);
    let device = Device::open(&network.provider(), "sim1").unwrap();
    sim.fail_queries(SimQuery::GidTable, Some(libc::EIO));
    assert_eq!(errno(&device.gid_table().unwrap_err()), Some(libc::EIO));
    assert_eq!(device.port(1).unwrap().state, PortState::Active);
    sim.fail_queries(SimQuery::Port(1), Some(libc::EAGAIN));
    assert_eq!(errno(&device.port(1).unwrap_err()), Some(libc::EAGAIN));
    sim.fail_queries(SimQuery::GidTable, None);
    assert_eq!(device.gid_table().unwrap().len(), 1);
}

#[test]
fn responders_of_a_device_share_its_reads() {
    let mut there = config(2);
    there.attributes.responder_reads_max = 7;
    let mut rig = rig([config(1), there]);
    rig.connect();
    let end = &rig.ends[1];
    let mut other = queue_pair(&end.device, &end.completions, &end.receives);
    let path = PathAttributes {
        port: 1,
        gid_index: 0,
        packet_sequence_number: 1,
        remote: Endpoint {
            queue_pair_number: 99,
            packet_sequence_number: 1,
            gid: Gid::from_ip(address(1)),
            lid: 0,
            mtu: Mtu::B4096,
            reads: ReadDepths::Same(4),
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        },
        agreement: AGREEMENT,
        traffic_class: 0,
        is_global: true,
        serves_reads: true,
        options: ConnectOptions::default(),
    };
    assert_eq!(errno(&other.connect(&path).unwrap_err()), Some(libc::ENOMEM));
    let fewer = Agreement { reads_in: 3, ..path.agreement };
    other.connect(&PathAttributes { agreement: fewer, ..path }).unwrap();
}
