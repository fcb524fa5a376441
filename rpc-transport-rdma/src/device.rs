//! Which port of which device serves a local address.
//!
//! On RoCE that is the port whose RoCE v2 GID equals the address: never the first entry of the
//! table or the last. On InfiniBand it is the port whose GID is in the hardware address of the
//! network interface that has the address (IP over InfiniBand). Only active ports count.
//!
//! Deliberately not here: opening connections, and any guess when nothing matches.

use std::fs;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use crate::verbs::{
    Device, Gid, GidEntry, GidKind, LinkLayer, Port, PortAttributes, PortState, Provider,
    VerbsError,
};

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortQuery<'a> {
    /// The local address that peers reach the port by.
    pub address: IpAddr,
    /// Only this device, if given.
    pub device: Option<&'a str>,
}

/// Why no port was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no RDMA device at all.
    #[error("this machine has no RDMA device")]
    NoDevice,
    /// No active port has the address.
    #[error("no active RDMA port has the address {address}; found: {}", list(found))]
    NoMatchingGid {
        /// The address that was looked for.
        address: IpAddr,
        /// What was found instead.
        found: Vec<FoundPort>,
    },
    /// A port has the address and is not active.
    #[error("port {port} of {device} has the address {address} but is not active (state {state})")]
    PortDown {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The port's state as verbs numbers it.
        state: u32,
    },
    /// A device could not be listed, opened or asked.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// A port that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPort {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u8,
    /// Attributes of the port.
    pub attributes: PortAttributes,
    /// The port's GIDs.
    pub gids: Vec<GidEntry>,
}

/// Finds the active port that has a local address, and opens its device.
///
/// # Errors
///
/// [`DeviceError`] says what was looked for and what was found.
pub fn find_port(provider: &dyn Provider, query: PortQuery<'_>) -> Result<Port, DeviceError> {
    find_port_by(provider, query, |name| Device::open(provider, name))
}

/// As [`find_port`], with a way to open devices that may know some of them already.
pub(crate) fn find_port_by(
    provider: &dyn Provider,
    query: PortQuery<'_>,
    open: impl Fn(&str) -> Result<Device, VerbsError>,
) -> Result<Port, DeviceError> {
    let mut candidates = Vec::new();
    for device in open_all(provider, query.device, open)? {
        for found in ports_of(&device)? {
            candidates.push((device.clone(), found));
        }
    }
    let interface_gid = infiniband_gid_of(query.address);
    let found: Vec<_> = candidates.iter().map(|(_, found)| found.clone()).collect();
    let (index, entry) = choose(&found, query.address, interface_gid)?;
    let (device, found) = candidates.swap_remove(index);
    Ok(Port {
        device,
        number: found.port,
        gid_index: entry.index,
        gid: entry.gid,
        attributes: found.attributes,
    })
}

/// Decides between the ports that were found. Pure.
fn choose(
    found: &[FoundPort],
    address: IpAddr,
    interface_gid: Option<Gid>,
) -> Result<(usize, GidEntry), DeviceError> {
    let mut down = None;
    for (index, port) in found.iter().enumerate() {
        let Some(entry) = port.matching_gid(address, interface_gid) else { continue };
        match port.attributes.state {
            PortState::Active => return Ok((index, entry)),
            PortState::Inactive(state) => down = down.or(Some((port, state))),
        }
    }
    Err(match down {
        Some((port, state)) => {
            DeviceError::PortDown { address, device: port.device.clone(), port: port.port, state }
        }
        None => DeviceError::NoMatchingGid { address, found: found.to_vec() },
    })
}

impl FoundPort {
    fn matching_gid(&self, address: IpAddr, interface_gid: Option<Gid>) -> Option<GidEntry> {
        let (kind, gid) = match self.attributes.link_layer {
            LinkLayer::Ethernet => (GidKind::RoceV2, Gid::from_ip(address)),
            LinkLayer::InfiniBand => (GidKind::InfiniBand, interface_gid?),
        };
        self.gids.iter().find(|entry| entry.kind == kind && entry.gid == gid).copied()
    }
}

/// Opens one device by name, or all there are. A device that cannot be opened is skipped as long
/// as another can: it may belong to somebody else.
fn open_all(
    provider: &dyn Provider,
    name: Option<&str>,
    open: impl Fn(&str) -> Result<Device, VerbsError>,
) -> Result<Vec<Device>, DeviceError> {
    if let Some(name) = name {
        return Ok(vec![open(name)?]);
    }
    let mut devices = Vec::new();
    let mut first_error = None;
    for info in provider.devices()? {
        match open(&info.name) {
            Ok(device) => devices.push(device),
            Err(error) => {
                tracing::warn!(device = info.name, %error, "cannot open an RDMA device");
                first_error = first_error.or(Some(error));
            }
        }
    }
    match first_error {
        _ if !devices.is_empty() => Ok(devices),
        Some(error) => Err(error.into()),
        None => Err(DeviceError::NoDevice),
    }
}

/// What each port of a device has now.
pub(crate) fn ports_of(device: &Device) -> Result<Vec<FoundPort>, VerbsError> {
    let table = device.gid_table()?;
    let ports = 1..=device.attributes().port_count;
    ports
        .map(|port| {
            Ok(FoundPort {
                device: device.name().to_owned(),
                port,
                attributes: device.port(port)?,
                gids: table.iter().filter(|entry| entry.port == port).copied().collect(),
            })
        })
        .collect()
}

/// The GID in the hardware address of the interface that has an address, if that interface is IP
/// over InfiniBand.
fn infiniband_gid_of(address: IpAddr) -> Option<Gid> {
    let interfaces = getifaddrs().ok()?;
    let mut interfaces = interfaces.filter(|it| it.address.and_then(ip_of) == Some(address));
    let name = interfaces.next()?.interface_name;
    let text = fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    gid_in_hardware_address(&text)
}

fn ip_of(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// An IP over InfiniBand hardware address is 4 bytes and then the port's GID (RFC 4391, 9.1.1).
fn gid_in_hardware_address(text: &str) -> Option<Gid> {
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    let bytes: [u8; 20] = bytes.ok()?.try_into().ok()?;
    bytes[4..].try_into().ok().map(Gid)
}

fn list(found: &[FoundPort]) -> String {
    if found.is_empty() {
        return "no port".to_owned();
    }
    let describe = |port: &FoundPort| {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| format!("{} ({:?})", entry.gid, entry.kind)).collect();
        let state = match port.attributes.state {
            PortState::Active => "active".to_owned(),
            PortState::Inactive(state) => format!("not active, state {state}"),
        };
        format!("{} port {} ({state}): {}", port.device, port.port, gids.join(", "))
    };
    found.iter().map(describe).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Mtu;

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
        };
        FoundPort {
            device: device.to_owned(),
            port: 1,
            attributes: PortAttributes {
                state,
                active_mtu: Mtu::B1024,
                message_len_max: 1 << 23,
                lid: 0,
                link_layer,
            },
            gids: (0..).zip(gids).map(entry).collect(),
        }
    }

    const ADDRESS: &str = "10.0.0.1";

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
