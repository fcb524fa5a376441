//! The local address of a connection, and whether its port still has it. Pure.

use crate::device::FoundPort;
use crate::verbs::{Gid, LinkLayer, Port};

/// The address of a port as a connected queue pair uses it, which never changes with the port's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    /// Number of the port.
    pub(crate) port: u8,
    gid_index: u8,
    gid: Gid,
    lid: u16,
    link_layer: LinkLayer,
}

impl LocalAddress {
    /// The address that connections made through `port` have.
    pub(crate) fn of(port: &Port) -> Self {
        Self {
            port: port.number,
            gid_index: port.gid_index,
            gid: port.gid,
            lid: port.attributes.lid,
            link_layer: port.attributes.link_layer,
        }
    }

    /// Whether this address has disappeared from the port.
    pub(super) fn is_lost(&self, found: &[FoundPort]) -> bool {
        let Some(port) = found.iter().find(|found| found.port == self.port) else { return true };
        match self.link_layer {
            LinkLayer::InfiniBand => port.attributes.lid != self.lid,
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
    use crate::verbs::{GidEntry, GidKind, Mtu, PortAttributes, PortState};

    fn reach(link_layer: LinkLayer) -> LocalAddress {
        LocalAddress { port: 1, gid_index: 3, gid: Gid([7; 16]), lid: 5, link_layer }
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
            },
            gids: vec![GidEntry { port, index, gid: Gid([gid; 16]), kind: GidKind::RoceV2 }],
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
    fn on_infiniband_the_lid_must_be_the_same() {
        let reach = reach(LinkLayer::InfiniBand);
        assert!(!reach.is_lost(&[found(1, 5, 0, 0)]));
        assert!(reach.is_lost(&[found(1, 6, 3, 7)]));
        assert!(reach.is_lost(&[]));
    }
}
