//! Packets that a simulated network carries from one address to another.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::sys::provider::{Gid, Mtu};

/// The pairs of addresses that a simulated network joins. Packets between others get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SimReach {
    /// All pairs.
    #[default]
    All,
    /// Pairs of one address family that have this many leading bits in common.
    SameSubnet {
        /// Length of the prefix in bits: 0 to 32 for IPv4, and 0 to 128 for IPv6. With the longest,
        /// each address reaches itself alone.
        prefix: u8,
    },
}

impl SimReach {
    fn joins(self, from: IpAddr, to: IpAddr) -> bool {
        let Self::SameSubnet { prefix } = self else { return true };
        let common = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (from.to_bits() ^ to.to_bits()).leading_zeros(),
            (IpAddr::V6(from), IpAddr::V6(to)) => (from.to_bits() ^ to.to_bits()).leading_zeros(),
            _ => return false,
        };
        common >= prefix.into()
    }
}

/// Routes and limits of a simulated network's paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) reach: SimReach,
    /// The interface that packets to an address leave by.
    pub(crate) routes: BTreeMap<IpAddr, u32>,
    /// MTU of the path from one address to another; the ports' where there is none.
    pub(crate) mtus: BTreeMap<(IpAddr, IpAddr), Mtu>,
}

impl Paths {
    /// Returns true if packets go from a GID, whose entry is of `interface`, to another.
    pub(crate) fn carry(&self, from: Gid, interface: u32, to: Gid) -> bool {
        // What a call costs is counted over this network, too.
        if self.routes.is_empty() && self.reach == SimReach::All {
            return true;
        }
        let (from, to) = (from.to_ip(), to.to_ip());
        let is_routed = self.routes.get(&to).is_none_or(|route| *route == interface);
        is_routed && self.reach.joins(from, to)
    }

    /// Returns true if a path carries the packets of a message: each has `agreed` bytes at most.
    pub(crate) fn fits(&self, from: Gid, to: Gid, agreed: Mtu, len: u64) -> bool {
        if self.mtus.is_empty() {
            return true;
        }
        let mtu = self.mtus.get(&(from.to_ip(), to.to_ip()));
        mtu.is_none_or(|mtu| len.min(agreed.bytes().into()) <= mtu.bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_subnet_joins_addresses_of_one_prefix() {
        let reach = SimReach::SameSubnet { prefix: 24 };
        assert!(reach.joins(ip("10.0.0.1"), ip("10.0.0.250")));
        assert!(!reach.joins(ip("10.0.0.1"), ip("10.0.1.1")));
        assert!(reach.joins(ip("2001:db8::1"), ip("2001:db8:0:1::1")));
        assert!(!reach.joins(ip("10.0.0.1"), ip("2001:db8::1")));
        assert!(SimReach::All.joins(ip("10.0.0.1"), ip("192.168.7.1")));
    }

    #[test]
    fn a_path_carries_packets_up_to_its_mtu() {
        let [from, to] = ["10.0.0.1", "10.0.0.2"].map(|text| Gid::from_ip(ip(text)));
        let mut paths = Paths::default();
        assert!(paths.fits(from, to, Mtu::B4096, 1 << 20));
        paths.mtus.insert((from.to_ip(), to.to_ip()), Mtu::B1024);
        assert!(paths.fits(from, to, Mtu::B4096, 1024), "one packet");
        assert!(!paths.fits(from, to, Mtu::B4096, 1025), "too long for the path");
        assert!(paths.fits(from, to, Mtu::B1024, 1 << 20), "agreed on");
        assert!(paths.fits(to, from, Mtu::B4096, 1 << 20), "the other way");
    }
}
