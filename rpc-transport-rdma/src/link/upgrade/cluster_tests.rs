//! Faults of a cluster that one healthy device with one address never shows: devices that do not
//! answer, equal addresses, and responders with few resources.

use super::*;
use crate::sim::{SimDevice, SimDeviceConfig, SimGid, SimNetwork, SimQuery};
use crate::verbs::Mtu;

const HERE: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];
const VXLAN: u32 = 7;
const BOND: u32 = 9;

fn addresses() -> Addresses {
    let at = |address: [u8; 4]| Some((address, 7000).into());
    Addresses { local: at(HERE), peer: at(PEER), ..Addresses::default() }
}

fn upgrade(network: &SimNetwork, config: RdmaConfig) -> RdmaUpgrade {
    RdmaUpgrade::with_provider(Box::new(network.provider()), config)
}

/// A network with a device that answers and one that does not, in either order.
fn with_a_sick_device(is_sick_first: bool, query: SimQuery) -> (SimNetwork, SimDevice) {
    let network = SimNetwork::new(0);
    let names = if is_sick_first { ["sick", "good"] } else { ["good", "sick"] };
    let devices = names.map(|name| {
        let address = if name == "good" { HERE } else { [10, 0, 0, 9] };
        network.add_device(name, &[address.into()])
    });
    let sick = devices.into_iter().find(|device| device.name() == "sick").unwrap();
    sick.fail_queries(query, Some(libc::EIO));
    (network, sick)
}

#[tokio::test]
async fn a_device_that_answers_no_query_is_skipped() {
    for query in [SimQuery::GidTable, SimQuery::Port(1)] {
        for is_sick_first in [true, false] {
            let (network, _sick) = with_a_sick_device(is_sick_first, query);
            let upgrade = upgrade(&network, RdmaConfig::default());
            let checked = upgrade.check(None).map_err(|declined| declined.reason);
            assert_eq!(checked, Ok("good:1 (10.0.0.1)".to_owned()), "{query:?}");
            let prepared = upgrade.prepare(&addresses(), None);
            let device = prepared.map(|end| end.queues.messages().port().device.name().to_owned());
            assert_eq!(device.map_err(|declined| declined.reason), Ok("good".to_owned()));
        }
    }
}

#[tokio::test]
async fn a_sick_device_is_named_where_no_other_serves() {
    for query in [SimQuery::GidTable, SimQuery::Port(1)] {
        let (network, sick) = with_a_sick_device(true, query);
        let config = RdmaConfig::default().with_devices(vec!["sick".to_owned()]);
        let upgrade = upgrade(&network, config);
        let reason = upgrade.check(None).expect_err("no device answers").reason;
        assert!(reason.contains("sick") && reason.contains("Input/output error"), "{reason}");
        sick.fail_queries(query, None);
        assert_eq!(upgrade.check(None).map_err(|it| it.reason), Ok("sick:1 (10.0.0.9)".to_owned()));
    }
}

#[tokio::test]
async fn a_sick_port_hides_no_other_port_of_its_device() {
    let network = SimNetwork::new(0);
    let mut config = SimDeviceConfig::new("sim", &[[10, 0, 0, 9].into()]);
    config.ports.push(crate::sim::SimPort::new(&[HERE.into()]));
    config.ports[1].mtu = Mtu::B1024;
    let sim = network.add_device_with(config);
    sim.fail_queries(SimQuery::Port(1), Some(libc::EINVAL));
    let upgrade = upgrade(&network, RdmaConfig::default());
    let prepared = upgrade.prepare(&addresses(), None).map_err(|declined| declined.reason);
    assert_eq!(prepared.map(|end| end.queues.messages().port().number), Ok(2));
}

/// The table of a host whose bond and VXLAN have one address (UCX#9484).
fn with_equal_gids() -> (SimNetwork, RdmaUpgrade) {
    let network = SimNetwork::new(0);
    let mut config = SimDeviceConfig::new("bond", &[]);
    let at = |index, interface| SimGid::new(index, HERE.into(), interface);
    config.ports[0].gids = vec![at(3, VXLAN), at(5, BOND)];
    network.add_device_with(config);
    let upgrade = upgrade(&network, RdmaConfig::default());
    (network, upgrade)
}

fn chosen(upgrade: &RdmaUpgrade) -> u8 {
    let prepared = upgrade.prepare(&addresses(), None).map_err(|declined| declined.reason);
    prepared.unwrap().queues.messages().port().gid_index
}

#[tokio::test]
async fn the_route_decides_among_equal_gids_of_a_port() {
    for (interface, index) in [(BOND, 5), (VXLAN, 3), (99, 3)] {
        let (network, upgrade) = with_equal_gids();
        assert_eq!(chosen(&upgrade), 3, "without a route the first");
        network.route_to(PEER.into(), interface);
        assert_eq!(chosen(&upgrade), index, "interface {interface}");
        assert_eq!(chosen(&upgrade), index, "what was found is kept");
    }
}

#[tokio::test]
async fn the_route_decides_among_devices_with_equal_gids() {
    let network = SimNetwork::new(0);
    for (name, interface) in [("container", VXLAN), ("host", BOND)] {
        let mut config = SimDeviceConfig::new(name, &[]);
        config.ports[0].gids = vec![SimGid::new(1, HERE.into(), interface)];
        network.add_device_with(config);
    }
    let upgrade = upgrade(&network, RdmaConfig::default());
    network.route_to(PEER.into(), BOND);
    let prepared = upgrade.prepare(&addresses(), None).map_err(|declined| declined.reason);
    assert_eq!(prepared.unwrap().queues.messages().port().device.name(), "host");
}

#[tokio::test]
async fn a_device_that_is_named_twice_is_opened_once() {
    let network = SimNetwork::new(0);
    for host in 1..=2_u8 {
        network.add_device(&format!("sim{host}"), &[[10, 0, 0, host].into()]);
    }
    let names = ["sim1", "sim2", "sim1:1"].map(str::to_owned).to_vec();
    let upgrade = upgrade(&network, RdmaConfig::default().with_devices(names));
    let ports = upgrade.check(None).map_err(|declined| declined.reason);
    assert_eq!(ports, Ok("sim1:1 (10.0.0.1), sim2:1 (10.0.0.2)".to_owned()));
}

/// A device serves both ends; both sides of a connection count.
#[tokio::test]
async fn a_connection_takes_few_reads_of_its_responders() {
    let network = SimNetwork::new(0);
    let mut config = SimDeviceConfig::new("sim", &[HERE.into(), PEER.into()]);
    // Per end: 8 on each of 2 queue pairs for READs, and 1 on that of the messages.
    config.attributes.responder_reads_max = 2 * 17;
    network.add_device_with(config);
    let upgrade = upgrade(&network, RdmaConfig::default());
    let client = upgrade.prepare(&addresses(), None).map_err(|it| it.reason).unwrap();
    let mirrored = Addresses { local: addresses().peer, peer: addresses().local, ..addresses() };
    let server = upgrade.prepare(&mirrored, None).map_err(|it| it.reason).unwrap();
    let (here, there) = (client.conn_params(), server.conn_params());
    let joined = [client.join(&there), server.join(&here)];
    let failed = |end: Result<ConnectedEnd, Declined>| end.err().map(|declined| declined.reason);
    assert_eq!(joined.map(failed), [None, None]);
}
