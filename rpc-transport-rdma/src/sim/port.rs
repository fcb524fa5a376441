//! The ports of a simulated device, and the entries of their GID tables.

use std::net::IpAddr;

use crate::sys::provider::{Gid, GidKind, LinkLayer, Mtu, Partition};

/// A port of a simulated device.
///
/// [`new`](Self::new) makes a RoCE v2 port, and [`infiniband`](Self::infiniband) one on InfiniBand.
/// Both have an MTU of 4096 bytes, one LAG port, and no limit on their rate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimPort {
    /// Valid entries of its GID table.
    #[doc(hidden)]
    pub gids: Vec<SimGid>,
    /// MTU of the port. 4096 by default.
    #[doc(hidden)]
    pub mtu: Mtu,
    /// Traffic class of its packets without a setting. 0 by default, as on Soft-RoCE.
    #[doc(hidden)]
    pub traffic_class: u8,
    /// Link layer. Ethernet by default. On InfiniBand its GIDs need the kind
    /// [`GidKind::InfiniBand`].
    #[doc(hidden)]
    pub link_layer: LinkLayer,
    /// Local identifier, for InfiniBand. 0 by default.
    #[doc(hidden)]
    pub lid: u16,
    /// Its table of partition keys. The default partition's by default.
    #[doc(hidden)]
    pub partition_keys: Vec<u16>,
    /// Set if queue pairs must send with a global header, whatever the link layer.
    #[doc(hidden)]
    pub needs_global_route: bool,
    /// Rates at which bytes leave it. No limit by default.
    #[doc(hidden)]
    pub rate: SimRate,
    /// Number of physical ports that it bonds, its LAG ports, from 1 to 8. 1 by default. The queue
    /// pairs of an opening take them in turn, in the order of their creation, as mlx5's do.
    #[doc(hidden)]
    pub lag_ports: u8,
}

/// Rates of a port, in bytes per second. 0, the default, is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SimRate {
    /// Rate of each queue pair of the port.
    pub per_queue_pair: u64,
    /// Rate of each of its LAG ports, which the queue pairs of that LAG port share.
    pub per_port: u64,
}

/// A valid entry of a port's GID table: an address of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimGid {
    /// Position in the table. Positions may have gaps.
    #[doc(hidden)]
    pub index: u8,
    /// The identifier.
    #[doc(hidden)]
    pub gid: Gid,
    /// Kind of the entry. RoCE v2 by default.
    #[doc(hidden)]
    pub kind: GidKind,
    /// Index of the network interface that the entry belongs to. 0, the default, is unknown.
    #[doc(hidden)]
    pub interface: u32,
    /// MTU of that interface in bytes. 0, the default, is unknown.
    #[doc(hidden)]
    pub interface_mtu: u32,
}

/// A query that a device can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimQuery {
    /// The attributes of the port of this number.
    Port(u8),
    /// The GID tables of all ports.
    GidTable,
}

impl SimPort {
    /// A port with a RoCE v2 GID for each address, in this order.
    #[must_use]
    pub fn new(addresses: &[IpAddr]) -> Self {
        let gids = (0..).zip(addresses).map(|(index, address)| SimGid::new(index, *address, 0));
        Self {
            gids: gids.collect(),
            mtu: Mtu::B4096,
            traffic_class: 0,
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            partition_keys: vec![Partition::DEFAULT.key],
            needs_global_route: false,
            rate: SimRate::default(),
            lag_ports: 1,
        }
    }

    /// A port on InfiniBand, with a local identifier from 1 to 49,151 and GIDs, in this order.
    ///
    /// The first half of an IPv6 address is the prefix of its subnet. All IPv4 addresses are in one
    /// subnet. A connection reaches such a port by
    /// [`PortChoice::Nearest`](crate::PortChoice::Nearest): its GIDs are no addresses of the host.
    #[must_use]
    pub fn infiniband(lid: u16, gids: &[IpAddr]) -> Self {
        let mut port = Self { link_layer: LinkLayer::InfiniBand, lid, ..Self::new(gids) };
        port.gids.iter_mut().for_each(|entry| entry.kind = GidKind::InfiniBand);
        port
    }

    /// Sets the GID table. Positions may have gaps, and come in any order.
    #[must_use]
    pub fn with_gids(mut self, gids: Vec<SimGid>) -> Self {
        self.gids = gids;
        self
    }

    /// Sets the MTU, which the ends of a connection agree on. Default 4096 bytes.
    #[must_use]
    pub fn with_mtu(mut self, mtu: Mtu) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets the partition keys, for InfiniBand. By default it has the default partition's, 0xffff.
    ///
    /// The low 15 bits of a key are its partition, and the highest bit is set for a full member.
    /// Two ports are joined if their partitions are equal and one is a full member.
    #[must_use]
    pub fn with_partition_keys(mut self, keys: Vec<u16>) -> Self {
        self.partition_keys = keys;
        self
    }

    /// Sets the rate of each LAG port, in bytes per second. 0, the default, is no limit.
    ///
    /// The bytes of messages leave by the port of their sender, and those of READs by the port of
    /// the memory's owner. Requests of READs and acknowledgements take no time.
    #[must_use]
    pub fn with_rate(mut self, bytes_per_second: u64) -> Self {
        self.rate.per_port = bytes_per_second;
        self
    }

    /// Sets the rate of each queue pair, in bytes per second. 0, the default, is no limit.
    #[must_use]
    pub fn with_queue_pair_rate(mut self, bytes_per_second: u64) -> Self {
        self.rate.per_queue_pair = bytes_per_second;
        self
    }

    /// Sets the number of physical ports that it bonds, its LAG ports, from 1 to 8. Default 1.
    ///
    /// The queue pairs of an opening take them in turn, in the order of their creation.
    #[must_use]
    pub fn with_lag_ports(mut self, count: u8) -> Self {
        self.lag_ports = count;
        self
    }
}

impl SimGid {
    /// The RoCE v2 GID of an address, at a position of the table, of the network interface with an
    /// index. Index 0 is an unknown interface.
    ///
    /// Several interfaces may have equal addresses: [`SimNetwork::route_to`] decides between them.
    ///
    /// [`SimNetwork::route_to`]: super::SimNetwork::route_to
    #[must_use]
    pub fn new(index: u8, address: IpAddr, interface: u32) -> Self {
        let (gid, kind) = (Gid::from_ip(address), GidKind::RoceV2);
        Self { index, gid, kind, interface, interface_mtu: 0 }
    }

    /// Returns true if two entries cannot be told apart on the network.
    pub(crate) fn clashes(&self, other: &Self) -> bool {
        self.gid == other.gid && self.interface == other.interface
    }
}
