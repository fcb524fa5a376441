//! A port that was looked at, and which of its GIDs serves a connection: that of an address, or the
//! one in the hardware address of a network interface (IP over InfiniBand).

use std::fs;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use crate::verbs::{
    Device, Gid, GidEntry, GidKind, LinkLayer, LocalAddress, PortAttributes, VerbsError,
};

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
    /// The keys of the port's table of partitions; empty where the system does not say.
    pub partition_keys: Vec<u16>,
}

/// Returns the current state of each port of a device.
pub(crate) fn ports_of(device: &Device) -> Result<Vec<FoundPort>, VerbsError> {
    match query_ports(device) {
        (ports, None) => Ok(ports),
        (_, Some(error)) => Err(error),
    }
}

/// The ports of a device that answer, and the error of the first that does not.
pub(super) fn query_ports(device: &Device) -> (Vec<FoundPort>, Option<VerbsError>) {
    // A query would wait for the same firmware.
    let table = device.check_firmware().and_then(|()| device.gid_table());
    let table = match table {
        Ok(table) => table,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut ports, mut refusal) = (Vec::new(), None);
    for port in 1..=device.attributes().port_count {
        match device.port(port) {
            Ok(attributes) => ports.push(FoundPort {
                device: device.name().to_owned(),
                port,
                attributes,
                gids: table.iter().filter(|entry| entry.port == port).copied().collect(),
                partition_keys: device.raw().partition_keys(port),
            }),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    (ports, refusal)
}

impl FoundPort {
    /// The GIDs that peers can be given.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &GidEntry> {
        let kind = match self.attributes.link_layer {
            LinkLayer::Ethernet => GidKind::RoceV2,
            LinkLayer::InfiniBand => GidKind::InfiniBand,
        };
        self.gids.iter().filter(move |entry| entry.kind == kind)
    }

    /// The port with the GIDs that peers can be given, in words for the log.
    pub(crate) fn describe(&self) -> String {
        let gids: Vec<_> = self.serving().map(|entry| entry.gid.to_string()).collect();
        format!("{}:{} ({})", self.device, self.port, gids.join(", "))
    }

    /// The GID that is the address, or that of the interface which has the address; with `index`,
    /// at that place of the port's table. Of equal ones it is that of `interface`, which leads to
    /// the peer, or else the first.
    pub(super) fn gid_of(
        &self,
        address: IpAddr,
        interface_gid: Option<Gid>,
        index: Option<u8>,
        interface: Option<u32>,
    ) -> Option<GidEntry> {
        let (kind, gid) = match self.attributes.link_layer {
            LinkLayer::Ethernet => (GidKind::RoceV2, Gid::from_ip(address)),
            LinkLayer::InfiniBand => (GidKind::InfiniBand, interface_gid?),
        };
        let gids = self.gids_at(index);
        let equal = gids.filter(|entry| entry.kind == kind && entry.gid == gid);
        equal.min_by_key(|entry| !entry.belongs_to(interface)).copied()
    }

    /// A GID that a peer could be given instead. On Ethernet it is an address that routers know,
    /// of the family of the connection's; on InfiniBand a port has a LID beside any.
    pub(super) fn any_gid(&self, address: IpAddr, index: Option<u8>) -> Option<GidEntry> {
        let serves = |entry: &&GidEntry| match self.attributes.link_layer {
            LinkLayer::InfiniBand => entry.kind == GidKind::InfiniBand,
            LinkLayer::Ethernet => {
                let gid = entry.gid.to_ip();
                entry.kind == GidKind::RoceV2
                    && gid.is_ipv4() == address.is_ipv4()
                    && is_routable(gid)
            }
        };
        self.gids_at(index).find(serves).copied()
    }

    /// The GIDs, or the one at a place of the port's table.
    fn gids_at(&self, index: Option<u8>) -> impl Iterator<Item = &GidEntry> {
        self.gids.iter().filter(move |entry| index.is_none_or(|index| entry.index == index))
    }
}

fn is_routable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !(address.is_link_local() || address.is_unspecified()),
        IpAddr::V6(address) => !(address.is_unicast_link_local() || address.is_unspecified()),
    }
}

/// The GID in the hardware address of the interface that has an address, if that interface is IP
/// over InfiniBand.
pub(super) fn infiniband_gid_of(address: IpAddr) -> Option<Gid> {
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
pub(super) fn gid_in_hardware_address(text: &str) -> Option<Gid> {
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    let bytes: [u8; 20] = bytes.ok()?.try_into().ok()?;
    bytes[4..].try_into().ok().map(Gid)
}

impl LocalAddress {
    /// Returns true if this address has disappeared from the port, or its place in the table of
    /// partitions has another.
    pub(crate) fn is_lost(&self, found: &[FoundPort]) -> bool {
        let Some(port) = found.iter().find(|found| found.port == self.port) else { return true };
        match self.link_layer {
            LinkLayer::InfiniBand => {
                let keys = &port.partition_keys;
                let key = keys.get(usize::from(self.partition.index)).copied().unwrap_or(0);
                port.attributes.lid != self.lid || !keys.is_empty() && key != self.partition.key
            }
            LinkLayer::Ethernet => {
                let is_ours = |index, gid| index == self.gid_index && gid == self.gid;
                !port.gids.iter().any(|entry| is_ours(entry.index, entry.gid))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Partition;
    use crate::verbs::{Mtu, PortState};

    fn reach(link_layer: LinkLayer) -> LocalAddress {
        let (gid, partition) = (Gid([7; 16]), Partition::DEFAULT);
        LocalAddress { port: 1, gid_index: 3, gid, lid: 5, link_layer, partition }
    }

    fn found(port: u8, lid: u16, index: u8, gid: u8) -> FoundPort {
        FoundPort {
            device: "sim".to_owned(),
            port,
            attributes: PortAttributes {
                state: PortState::Active,
                active_mtu: Mtu::B4096,
                message_len_max: 1 << 23,
                lid,
                link_layer: LinkLayer::Ethernet,
                traffic_class: 0,
                partition: Partition::DEFAULT,
                needs_global_route: false,
            },
            gids: vec![GidEntry {
                port,
                index,
                gid: Gid([gid; 16]),
                kind: GidKind::RoceV2,
                interface: None,
            }],
            partition_keys: Vec::new(),
        }
    }

    #[test]
    fn on_ethernet_the_gid_must_be_at_its_place() {
        let reach = reach(LinkLayer::Ethernet);
        assert!(!reach.is_lost(&[found(1, 0, 3, 7)]));
        for other in [found(1, 5, 4, 7), found(1, 5, 3, 8), found(2, 5, 3, 7)] {
            assert!(reach.is_lost(&[other]));
        }
    }

    #[test]
    fn on_infiniband_lid_and_partition_must_be_the_same() {
        let reach = reach(LinkLayer::InfiniBand);
        for (keys, is_lost) in
            [(vec![0xffff], false), (vec![0xffff, 0x8005], false), (vec![0x8005, 0xffff], true)]
        {
            let port = FoundPort { partition_keys: keys, ..found(1, 5, 0, 0) };
            assert_eq!(reach.is_lost(&[port]), is_lost);
        }
        assert!(!reach.is_lost(&[found(1, 5, 0, 0)]));
        assert!(reach.is_lost(&[found(1, 6, 3, 7)]));
        assert!(reach.is_lost(&[]));
    }
}
