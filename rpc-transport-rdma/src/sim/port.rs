//! The ports of a simulated device, and the entries of their GID tables.

use std::net::IpAddr;

use crate::sys::provider::{Gid, GidKind, LinkLayer, Mtu, Partition};

/// A port of a simulated device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimPort {
    /// Valid entries of its GID table.
    pub gids: Vec<SimGid>,
    /// MTU of the port. 4096 by default.
    pub mtu: Mtu,
    /// Traffic class of its packets without a setting. 0 by default, as on Soft-RoCE.
    pub traffic_class: u8,
    /// Link layer. Ethernet by default. On InfiniBand its GIDs need the kind
    /// [`GidKind::InfiniBand`].
    pub link_layer: LinkLayer,
    /// Local identifier, for InfiniBand. 0 by default.
    pub lid: u16,
    /// Its table of partition keys. The default partition's by default.
    pub partition_keys: Vec<u16>,
    /// Set if queue pairs must send with a global header, whatever the link layer.
    pub needs_global_route: bool,
}

/// A valid entry of a port's GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimGid {
    /// Position in the table. Positions may have gaps.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// Kind of the entry. RoCE v2 by default.
    pub kind: GidKind,
    /// Index of the network interface that the entry belongs to. 0, the default, is unknown.
    ///
    /// Several interfaces may have equal GIDs. Once a route names an interface
    /// for a peer, packets to that peer leave by an entry of that interface alone.
    pub interface: u32,
    /// MTU of that interface in bytes. 0, the default, is unknown.
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
        }
    }
}

impl SimGid {
    /// The RoCE v2 GID of an address, at a position, of a network interface.
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
