//! A port that was looked at, and which of its GIDs serves a connection.

use std::net::IpAddr;

use crate::verbs::{Device, Gid, GidEntry, GidKind, LinkLayer, PortAttributes, VerbsError};

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
    pub(crate) fn words(&self) -> String {
        let gids: Vec<_> = self.serving().map(|entry| entry.gid.to_string()).collect();
        format!("{}:{} ({})", self.device, self.port, gids.join(", "))
    }

    /// The GID that is the address, or that of the interface which has the address; with `index`,
    /// at that place of the port's table.
    pub(super) fn gid_of(
        &self,
        address: IpAddr,
        interface_gid: Option<Gid>,
        index: Option<u8>,
    ) -> Option<GidEntry> {
        let (kind, gid) = match self.attributes.link_layer {
            LinkLayer::Ethernet => (GidKind::RoceV2, Gid::from_ip(address)),
            LinkLayer::InfiniBand => (GidKind::InfiniBand, interface_gid?),
        };
        let mut gids = self.gids_at(index);
        gids.find(|entry| entry.kind == kind && entry.gid == gid).copied()
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
