//! One end of a path as its peer needs to know it: numbers and addresses of a port.

use core::net::{IpAddr, Ipv6Addr};
use std::fmt;

/// One end of a connection as its peer needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair, 24 bits.
    pub queue_pair_number: u32,
    /// Sequence number of its first packet, 24 bits.
    pub packet_sequence_number: u32,
    /// The port's GID.
    pub gid: Gid,
    /// The port's LID; 0 on Ethernet.
    pub lid: u16,
    /// The largest path MTU that the port can have now.
    pub mtu: Mtu,
    /// READs that it can have outstanding.
    pub reads: ReadDepths,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// Key of the InfiniBand partition that it sends in; `None` on Ethernet, and if the peer does
    /// not say.
    pub partition_key: Option<u16>,
    /// True if its packets must have a global header, whatever the link layer.
    pub needs_global_route: bool,
}

/// READs that a queue pair can have outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadDepths {
    /// One number for both ways, of a peer that says no other.
    Same(u8),
    /// One for each way: mlx4 serves 16 and sends 128.
    Apart {
        /// READs of the peer that it can serve at a time.
        responder: u8,
        /// READs that it can have sent.
        initiator: u8,
    },
}

impl ReadDepths {
    /// Returns the lesser number.
    #[must_use]
    pub fn least(self) -> u8 {
        match self {
            Self::Same(both) => both,
            Self::Apart { responder, initiator } => responder.min(initiator),
        }
    }

    /// Returns what both ends can have: READs of the peer, and READs of this end. With a peer that
    /// says one number both ways have one, as it reckons itself.
    pub(crate) fn agree(self, peer: Self) -> (u8, u8) {
        let (
            Self::Apart { responder, initiator },
            Self::Apart { responder: into, initiator: from },
        ) = (self, peer)
        else {
            let both = self.least().min(peer.least());
            return (both, both);
        };
        (responder.min(from), initiator.min(into))
    }
}

/// A port's global identifier, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The identifier that a RoCE v2 port has for an IP address: IPv4 is mapped into IPv6.
    #[must_use]
    pub fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }

    /// The half that all ports of an InfiniBand subnet have in common.
    #[must_use]
    pub fn subnet_prefix(self) -> [u8; 8] {
        // A slice pattern cannot fail, where a range could panic.
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }

    /// The identifier as an IP address; a mapped IPv4 address comes back as IPv4.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// The link layer of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: ports are addressed by LID.
    InfiniBand,
    /// Ethernet (RoCE): ports are addressed by GID.
    Ethernet,
}

/// The payload of one packet on a path, which verbs has as an enumeration of powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

/// Bytes of an Ethernet frame that a RoCE packet may need beside its payload. The kernel subtracts
/// as many (`iboe_get_mtu` in `ib_addr.h`): GRH 40, UDP 8, BTH 12, XRC 4, atomic 28 and ICRC 4.
const ROCE_HEADERS_LEN_MAX: u32 = 96;

impl Mtu {
    const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u16 {
        match self {
            Self::B256 => 256,
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// The largest MTU whose packets an Ethernet interface carries whose own is `interface_mtu`
    /// bytes. The smallest there is if none fits.
    #[must_use]
    pub(crate) fn on_interface(interface_mtu: u32) -> Self {
        let payload = interface_mtu.saturating_sub(ROCE_HEADERS_LEN_MAX);
        // A path with less than 256 bytes cannot carry RoCE at all; the proof finds that.
        let fits = |mtu: &Self| u32::from(mtu.bytes()) <= payload;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::B256)
    }

    /// The MTU of exactly this many bytes, or `None` when verbs has no such MTU.
    #[must_use]
    pub fn from_bytes(bytes: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_map_to_gids_and_back() {
        for text in ["10.0.0.1", "2001:db8::7", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Gid::from_ip(address).to_ip(), address);
            assert_eq!(Gid::from_ip(address).to_string(), text);
        }
        let mapped = Gid::from_ip("10.0.0.1".parse().unwrap());
        assert_eq!(mapped.0[10..], [0xff, 0xff, 10, 0, 0, 1]);
    }

    #[test]
    fn only_the_five_sizes_are_mtus() {
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu));
        }
        for bytes in [0, 255, 1500, u16::MAX] {
            assert_eq!(Mtu::from_bytes(bytes), None);
        }
        assert!(Mtu::B256 < Mtu::B4096);
    }

    #[test]
    fn an_interface_carries_its_mtu_without_headers() {
        let table = [(0, 256), (1119, 512), (1120, 1024), (1500, 1024), (4191, 2048), (4192, 4096)];
        for (interface, expected) in table.into_iter().chain([(9000, 4096), (u32::MAX, 4096)]) {
            assert_eq!(Mtu::on_interface(interface).bytes(), expected, "{interface}");
        }
    }
}
