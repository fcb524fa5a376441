//! Looking at ports, and the choice between those that were found.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::{DeviceError, FoundPort, PortName, Topology};
use crate::PortChoice;
use crate::device::found_port::{infiniband_gid_of, query_ports};
use crate::verbs::{Device, Gid, GidEntry, Mtu, Port, PortState, Provider, VerbsError};

/// A search for a port by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortQuery<'a> {
    /// The local address that peers reach the port by.
    pub address: IpAddr,
    /// Only this device or port (`mlx5_0:1`), if given.
    pub device: Option<&'a str>,
}

/// All that a port is chosen by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The connection's local address.
    pub address: IpAddr,
    /// The ports that may be used; all if there are none.
    pub names: Vec<PortName>,
    /// The choice among several ports.
    pub choice: PortChoice,
    /// The only place of a port's GID table that may be used; all if there is none.
    pub gid_index: Option<u8>,
    /// Index of the network interface that packets to the peer leave by, if it is known.
    pub interface: Option<u32>,
}

impl Search {
    /// Looks everywhere for the port that has an address.
    #[must_use]
    pub fn for_address(address: IpAddr) -> Self {
        let (names, choice) = (Vec::new(), PortChoice::Address);
        Self { address, names, choice, gid_index: None, interface: None }
    }

    fn may_use(&self, port: &FoundPort) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name.includes(port))
    }
}

/// Finds the active port that has a local address, and opens its device.
///
/// # Errors
///
/// [`DeviceError`] says what was looked for and what was found.
pub fn find_port(provider: &dyn Provider, query: PortQuery<'_>) -> Result<Port, DeviceError> {
    let names = query.device.map(str::parse).transpose()?.into_iter().collect();
    let search = Search { names, ..Search::for_address(query.address) };
    find_port_by(provider, &search, |name| Device::open(provider, name), |_| {})
}

/// Finds a port, with a way to open devices that may know some of them already. `look` is shown all
/// ports.
pub(crate) fn find_port_by(
    provider: &dyn Provider,
    search: &Search,
    open: impl Fn(&str) -> Result<Device, VerbsError>,
    look: impl FnOnce(&[FoundPort]),
) -> Result<Port, DeviceError> {
    let mut candidates = Vec::new();
    let opened = match open_all(provider, &search.names, open) {
        Err(DeviceError::NoDevice) => {
            look(&[]);
            return Err(DeviceError::NoDevice);
        }
        opened => opened?,
    };
    let mut refusal = None;
    for device in opened {
        let (ports, error) = ports_that_answer(&device);
        refusal = refusal.or(error);
        candidates.extend(ports.into_iter().map(|found| (device.clone(), found)));
    }
    let interface_gid = infiniband_gid_of(search.address);
    let found: Vec<_> = candidates.iter().map(|(_, found)| found.clone()).collect();
    look(&found);
    let topology = Topology::current();
    let distance = |device: &str| topology.distance(device);
    let chosen = choose(&found, search, interface_gid, distance);
    // What a device that does not answer has is not known: it may be what was looked for.
    let (index, entry) = chosen.map_err(|error| refusal.unwrap_or(error))?;
    let (device, found) = candidates.swap_remove(index);
    let mut attributes = found.attributes;
    // The port's MTU is that of its physical interface. A GID may belong to a VLAN on top of it,
    // whose MTU is smaller, and packets leave by that.
    if let Some(mtu) = entry.interface.and_then(|interface| provider.interface_mtu(interface)) {
        attributes.active_mtu = attributes.active_mtu.min(Mtu::on_interface(mtu));
    }
    let (number, gid_index, gid) = (found.port, entry.index, entry.gid);
    Ok(Port { device, number, gid_index, gid, attributes })
}

/// The ports of a device that answer, and the error of the first that does not. That is logged: a
/// device that is being reset, or a port without rights, must not hide the others.
fn ports_that_answer(device: &Device) -> (Vec<FoundPort>, Option<DeviceError>) {
    let (ports, error) = query_ports(device);
    let refusal = error.map(|source| {
        let device = device.name().to_owned();
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide, WARN, "an RDMA device does not answer", device, error = %source
        );
        DeviceError::NoAnswer { device, source }
    });
    (ports, refusal)
}

/// The ports that may be used and could serve some address, with their devices.
pub(crate) fn usable_ports(
    provider: &dyn Provider,
    which: &UsablePorts,
    open: impl Fn(&str) -> Result<Device, VerbsError>,
) -> Result<Vec<(Device, FoundPort)>, DeviceError> {
    let (mut usable, mut all, mut refusal) = (Vec::new(), Vec::new(), None);
    for device in open_all(provider, &which.names, open)? {
        let (ports, error) = ports_that_answer(&device);
        refusal = refusal.or(error);
        for found in ports {
            all.push(found.clone());
            if which.includes(&found) {
                usable.push((device.clone(), found));
            }
        }
    }
    match usable.is_empty() {
        true => Err(refusal.unwrap_or(DeviceError::NoActivePort { found: all })),
        false => Ok(usable),
    }
}

/// The ports that may be used.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsablePorts {
    /// The devices or ports by name; all if there are none.
    pub(crate) names: Vec<PortName>,
    /// The only place of a port's GID table that may be used; all if there is none.
    pub(crate) gid_index: Option<u8>,
}

impl UsablePorts {
    /// Returns true if a port is one of them and could serve some address. Pure.
    pub(crate) fn includes(&self, port: &FoundPort) -> bool {
        let may_use = self.names.is_empty() || self.names.iter().any(|name| name.includes(port));
        let is_active = port.attributes.state == PortState::Active;
        let is_allowed = |entry: &GidEntry| self.gid_index.is_none_or(|it| entry.index == it);
        may_use && is_active && port.serving().any(is_allowed)
    }
}

/// Decides between the ports that were found. Pure.
fn choose(
    found: &[FoundPort],
    search: &Search,
    interface_gid: Option<Gid>,
    distance: impl Fn(&str) -> Option<u32>,
) -> Result<(usize, GidEntry), DeviceError> {
    let address = search.address;
    let mut down = None;
    let mut serving = Vec::new();
    for (index, port) in found.iter().enumerate().filter(|(_, port)| search.may_use(port)) {
        let own = port.gid_of(address, interface_gid, search.gid_index, search.interface);
        let other = || match search.choice {
            PortChoice::Address => None,
            PortChoice::Nearest => port.any_gid(address, search.gid_index),
        };
        let Some(entry) = own.or_else(other) else { continue };
        match port.attributes.state {
            PortState::Active => serving.push((index, entry)),
            PortState::Inactive(state) if own.is_some() => down = down.or(Some((port, state))),
            PortState::Inactive(_) => {}
        }
    }
    // An address that several interfaces have reaches the peer by that of the route alone. Unknown
    // distances are the greatest; of equals the first is taken.
    let nearness = |(index, entry): &(usize, GidEntry)| {
        let misses_route =
            search.choice == PortChoice::Address && !entry.belongs_to(search.interface);
        (misses_route, Reverse(distance(&found[*index].device).map(Reverse)))
    };
    if let Some(nearest) = serving.into_iter().min_by_key(nearness) {
        return Ok(nearest);
    }
    let all = || found.to_vec();
    if let (Some(index), None) = (search.gid_index, down) {
        return Err(DeviceError::NoGidAtIndex { index, address, found: all() });
    }
    Err(match (down, search.choice) {
        (Some((port, state)), _) => {
            DeviceError::PortDown { address, device: port.device.clone(), port: port.port, state }
        }
        (None, PortChoice::Address) => DeviceError::NoMatchingGid { address, found: all() },
        (None, PortChoice::Nearest) => DeviceError::NoUsablePort { address, found: all() },
    })
}

/// Opens the devices that are named, or all there are. A device that cannot be opened is skipped as
/// long as another can: it may belong to another user, or be gone.
fn open_all(
    provider: &dyn Provider,
    names: &[PortName],
    open: impl Fn(&str) -> Result<Device, VerbsError>,
) -> Result<Vec<Device>, DeviceError> {
    let mut wanted: Vec<String> = Vec::new();
    for name in names {
        if !wanted.contains(&name.device) {
            wanted.push(name.device.clone());
        }
    }
    if wanted.is_empty() {
        wanted = provider.devices()?.into_iter().map(|info| info.name).collect();
    }
    let mut devices = Vec::new();
    let mut first_error = None;
    for name in &wanted {
        match open(name) {
            Ok(device) => devices.push(device),
            Err(error) => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide, WARN, "cannot open an RDMA device", device = name, %error
                );
                first_error = first_error.or(Some(error));
            }
        }
    }
    if devices.is_empty() {
        return Err(first_error.map_or(DeviceError::NoDevice, DeviceError::from));
    }
    check_ports(&devices, names)?;
    Ok(devices)
}

/// Checks that every named port exists.
fn check_ports(devices: &[Device], names: &[PortName]) -> Result<(), DeviceError> {
    for name in names {
        let device = devices.iter().find(|device| device.name() == name.device);
        let port_count = device.map(|device| device.attributes().port_count);
        if let (Some(port), Some(port_count)) = (name.port, port_count)
            && port > port_count
        {
            let device = name.device.clone();
            return Err(DeviceError::NoSuchPort { device, port, port_count });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::found_port::gid_in_hardware_address;
    use crate::verbs::Partition;
    use crate::verbs::{GidKind, LinkLayer, PortAttributes};

    fn can_serve(port: &FoundPort, names: &[PortName], gid_index: Option<u8>) -> bool {
        UsablePorts { names: names.to_vec(), gid_index }.includes(port)
    }

    fn port(device: &str, state: PortState, gids: &[(&str, GidKind)]) -> FoundPort {
        let link_layer = match gids[0].1 {
            GidKind::InfiniBand => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        };
        let entry = |(index, (gid, kind)): (u8, &(&str, GidKind))| GidEntry {
            port: 1,
            index,
            gid: Gid::from_ip(gid.parse().unwrap()),
            kind: *kind,
            interface: None,
        };
        FoundPort {
            partition_keys: Vec::new(),
            device: device.to_owned(),
            port: 1,
            attributes: PortAttributes {
                state,
                active_mtu: Mtu::B1024,
                message_len_max: 1 << 23,
                lid: 0,
                link_layer,
                traffic_class: 0,
                partition: Partition::DEFAULT,
                needs_global_route: false,
            },
            gids: (0..).zip(gids).map(entry).collect(),
        }
    }

    const ADDRESS: &str = "10.0.0.1";

    fn choose(
        found: &[FoundPort],
        address: IpAddr,
        interface_gid: Option<Gid>,
    ) -> Result<(usize, GidEntry), DeviceError> {
        super::choose(found, &Search::for_address(address), interface_gid, |_| None)
    }

    /// Distances of devices by their names.
    fn distance(device: &str) -> Option<u32> {
        match device {
            "near" => Some(10),
            "far" => Some(21),
            _ => None,
        }
    }

    fn chosen(found: &[FoundPort], search: &Search) -> Result<(String, u8), String> {
        let chosen = super::choose(found, search, None, distance);
        let name = |(index, entry): (usize, GidEntry)| (found[index].device.clone(), entry.index);
        chosen.map(name).map_err(|error| error.to_string())
    }

    #[test]
    fn the_nearest_of_equal_ports_is_chosen() {
        let here = [(ADDRESS, GidKind::RoceV2)];
        let ports = ["unknown", "far", "near"].map(|name| port(name, PortState::Active, &here));
        let mut search = Search::for_address(ADDRESS.parse().unwrap());
        assert_eq!(chosen(&ports, &search), Ok(("near".to_owned(), 0)));
        assert_eq!(chosen(&ports[..2], &search), Ok(("far".to_owned(), 0)));
        search.names = vec!["unknown".parse().unwrap(), "far:1".parse().unwrap()];
        assert_eq!(chosen(&ports, &search), Ok(("far".to_owned(), 0)));
        search.names = vec!["far:2".parse().unwrap()];
        assert!(chosen(&ports, &search).unwrap_err().contains("no active RDMA port has"));
    }

    #[test]
    fn the_nearest_port_serves_with_an_address_of_its_own() {
        let near = port(
            "near",
            PortState::Active,
            &[
                ("fe80::1", GidKind::RoceV2),
                ("10.1.0.9", GidKind::RoceV1),
                ("2001:db8::9", GidKind::RoceV2),
                ("10.1.0.9", GidKind::RoceV2),
            ],
        );
        let far = port("far", PortState::Active, &[(ADDRESS, GidKind::RoceV2)]);
        let mut search = Search::for_address(ADDRESS.parse().unwrap());
        let ports = [far.clone(), near.clone()];
        assert_eq!(chosen(&ports, &search), Ok(("far".to_owned(), 0)));
        search.choice = PortChoice::Nearest;
        assert_eq!(chosen(&ports, &search), Ok(("near".to_owned(), 3)));
        search.address = "2001:db8::1".parse().unwrap();
        assert_eq!(chosen(&ports, &search), Ok(("near".to_owned(), 2)), "the same family");

        search.address = ADDRESS.parse().unwrap();
        let down = FoundPort {
            attributes: PortAttributes { state: PortState::Inactive(1), ..near.attributes },
            ..near
        };
        assert_eq!(chosen(&[down.clone(), far], &search), Ok(("far".to_owned(), 0)));
        let error = chosen(&[down], &search).unwrap_err();
        assert!(
            error.starts_with("no active RDMA port can serve 10.0.0.1; found: near"),
            "{error}"
        );
    }

    #[test]
    fn the_roce_v2_gid_that_equals_the_address_is_chosen() {
        let found = [
            port("other", PortState::Active, &[("10.0.0.2", GidKind::RoceV2)]),
            port(
                "right",
                PortState::Active,
                &[
                    ("fe80::1", GidKind::RoceV2),
                    (ADDRESS, GidKind::RoceV1),
                    (ADDRESS, GidKind::RoceV2),
                ],
            ),
        ];
        let (index, entry) = choose(&found, ADDRESS.parse().unwrap(), None).unwrap();
        assert_eq!((index, entry.index, entry.kind), (1, 2, GidKind::RoceV2));
    }

    #[test]
    fn the_gid_at_the_place_that_is_set_is_chosen_or_none() {
        let both = port(
            "both",
            PortState::Active,
            &[
                (ADDRESS, GidKind::RoceV1),
                (ADDRESS, GidKind::RoceV2),
                ("10.1.0.9", GidKind::RoceV2),
                (ADDRESS, GidKind::RoceV2),
            ],
        );
        let ports = std::slice::from_ref(&both);
        let mut search = Search::for_address(ADDRESS.parse().unwrap());
        let mut at = |index, choice| {
            (search.gid_index, search.choice) = (Some(index), choice);
            chosen(ports, &search)
        };
        assert_eq!(at(3, PortChoice::Address), Ok(("both".to_owned(), 3)));
        assert_eq!(at(2, PortChoice::Nearest), Ok(("both".to_owned(), 2)));
        for (index, choice) in
            [(0, PortChoice::Nearest), (2, PortChoice::Address), (9, PortChoice::Nearest)]
        {
            let error = at(index, choice).unwrap_err();
            let text = format!(
                "no active RDMA port can serve 10.0.0.1 with the GID at rdma.gid_index {index}; \
                 found: both port 1: 0 is 10.0.0.1 (RoceV1), 1 is"
            );
            assert!(error.starts_with(&text), "{error}");
        }
        assert!(can_serve(&both, &[], Some(1)) && !can_serve(&both, &[], Some(0)));
    }

    #[test]
    fn an_infiniband_port_is_found_by_its_interface() {
        let text = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:1d:2a:31\n";
        let gid = gid_in_hardware_address(text).unwrap();
        assert_eq!(gid.to_string(), "fe80::2:c903:1d:2a31");
        let found =
            [port("ib", PortState::Active, &[("fe80::2:c903:1d:2a31", GidKind::InfiniBand)])];
        let (index, entry) = choose(&found, ADDRESS.parse().unwrap(), Some(gid)).unwrap();
        assert_eq!((index, entry.gid), (0, gid));
        assert!(choose(&found, ADDRESS.parse().unwrap(), None).is_err());
        for text in ["", "02:42:ac:11:00:02", "zz"] {
            assert_eq!(gid_in_hardware_address(text), None);
        }
    }

    #[test]
    fn a_port_that_is_down_is_not_chosen_and_is_named() {
        let down = port("rxe0", PortState::Inactive(1), &[(ADDRESS, GidKind::RoceV2)]);
        let error = choose(std::slice::from_ref(&down), ADDRESS.parse().unwrap(), None);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "port 1 of rxe0 has the address 10.0.0.1 but is not active (state 1)");
        let up = port("rxe1", PortState::Active, &[(ADDRESS, GidKind::RoceV2)]);
        assert_eq!(choose(&[down, up], ADDRESS.parse().unwrap(), None).unwrap().0, 1);
    }

    #[test]
    fn ports_that_do_not_match_serve_no_connection() {
        let here = [(ADDRESS, GidKind::RoceV2)];
        let up = port("up", PortState::Active, &here);
        assert!(can_serve(&up, &[], None) && can_serve(&up, &["up:1".parse().unwrap()], Some(0)));
        assert_eq!(up.describe(), "up:1 (10.0.0.1)");
        assert!(!can_serve(&up, &["other".parse().unwrap()], None));
        assert!(!can_serve(&port("down", PortState::Inactive(1), &here), &[], None));
        assert!(!can_serve(
            &port("old", PortState::Active, &[(ADDRESS, GidKind::RoceV1)]),
            &[],
            None
        ));
        let none = DeviceError::NoActivePort { found: vec![] }.to_string();
        assert_eq!(none, "no RDMA port is active and has an address; found: no port");
    }

    #[test]
    fn what_was_found_is_named_when_nothing_matches() {
        let found = [port("rxe0", PortState::Active, &[("10.0.0.2", GidKind::RoceV2)])];
        let error = choose(&found, ADDRESS.parse().unwrap(), None).unwrap_err().to_string();
        assert_eq!(
            error,
            "no active RDMA port has the address 10.0.0.1; found: \
             rxe0 port 1 (active): 10.0.0.2 (RoceV2)"
        );
    }
}
