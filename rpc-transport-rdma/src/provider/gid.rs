//! Global identifiers of ports: sixteen bytes that for RoCE v2 are an IP address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

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

/// What an entry of a GID table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: Ethernet frames without IP.
    RoceV1,
    /// RoCE v2: UDP over IP.
    RoceV2,
    /// A kind that this version does not know.
    Unknown(u32),
}

/// A valid entry of a device's GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// The port that the entry belongs to.
    pub port: u8,
    /// Position in the port's table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// What it is for.
    pub kind: GidKind,
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
}
