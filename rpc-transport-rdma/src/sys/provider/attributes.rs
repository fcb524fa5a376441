//! The attributes of devices and ports, as plain values.

use crate::proto::endpoint::{Gid, LinkLayer, Mtu};

/// A device as the system lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name by which it is opened, for example `mlx5_0` or `rxe0`.
    pub name: String,
}

/// The limits of a device that this crate respects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Number of physical ports; they count from 1.
    pub port_count: u8,
    /// Most queue pairs.
    pub queue_pairs_max: u32,
    /// Most work requests in a send queue.
    pub send_depth_max: u32,
    /// Most entries in a completion queue.
    pub completions_max: u32,
    /// Completion vectors: interrupts of their own, each on another processor. At least 1.
    pub completion_vectors: u32,
    /// Most receives in a shared receive queue; 0 when there are none.
    pub shared_receives_max: u32,
    /// Most memory windows; 0 when there are none.
    pub windows_max: u32,
    /// Most READs that the peer may have outstanding at one queue pair.
    pub reads_in_max: u8,
    /// Most READs that one queue pair may have outstanding at its peer.
    pub reads_out_max: u8,
    /// Most READs that peers may have outstanding at all queue pairs of the device together.
    pub responder_reads_max: u32,
}

/// The state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// It does.
    Active,
    /// It does not; the number is the state as verbs has it.
    Inactive(u32),
}

/// The attributes of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttributes {
    /// State of the port.
    pub state: PortState,
    /// Payload of a packet on the path as the port has it now.
    pub active_mtu: Mtu,
    /// Longest message in bytes.
    pub message_len_max: u32,
    /// Local identifier; meaningful on InfiniBand only.
    pub lid: u16,
    /// Link layer of its packets.
    pub link_layer: LinkLayer,
    /// Traffic class that its packets have unless a setting says otherwise.
    pub traffic_class: u8,
    /// Partition that its queue pairs are in.
    pub partition: Partition,
    /// True if its packets must have a global header.
    pub needs_global_route: bool,
}

/// An InfiniBand partition, as a port has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Position in the port's table.
    pub index: u16,
    /// The key: the partition in 15 bits, and a bit that is set for a full member.
    pub key: u16,
}

impl Partition {
    /// The partition that every port is in at first.
    pub const DEFAULT: Self = Self { index: 0, key: 0xffff };

    /// The bit of a full member.
    const FULL: u16 = 0x8000;

    /// Chooses from a port's table: the first partition that the port is a full member of, else
    /// the first. Entries of 0 in the low 15 bits are empty.
    pub(crate) fn choose(keys: &[u16]) -> Self {
        let entries = (0..).zip(keys.iter().copied()).filter(|(_, key)| key & !Self::FULL != 0);
        let mut entries = entries.map(|(index, key)| Self { index, key });
        let is_full = |entry: &Self| entry.key & Self::FULL != 0;
        entries.clone().find(is_full).or_else(|| entries.next()).unwrap_or(Self::DEFAULT)
    }

    /// Returns true if packets pass between members with these keys: limited members cannot talk to
    /// each other.
    pub(crate) fn joins(here: u16, there: u16) -> bool {
        let is_same = (here ^ there) & !Self::FULL == 0;
        is_same && (here | there) & Self::FULL != 0
    }
}

/// The kind of an entry in a GID table.
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
    /// Kind of the entry.
    pub kind: GidKind,
    /// Index of the network interface that the entry belongs to, if the system says so.
    pub interface: Option<u32>,
}

impl GidEntry {
    /// Returns true if the entry is known to be of a network interface that is known.
    pub(crate) fn belongs_to(&self, interface: Option<u32>) -> bool {
        interface.is_some() && self.interface == interface
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_full_membership_is_chosen() {
        for (keys, index) in [
            (&[0x7fff, 0x8001, 0xffff][..], 1),
            (&[0, 0x8000, 0x7fff], 2),
            (&[0xffff], 0),
            (&[0, 0], 0),
            (&[], 0),
        ] {
            assert_eq!(Partition::choose(keys).index, index, "{keys:x?}");
        }
    }

    #[test]
    fn a_partition_joins_its_members_unless_both_are_limited() {
        assert!(Partition::joins(0xffff, 0xffff) && Partition::joins(0x8001, 0x0001));
        assert!(!Partition::joins(0x0001, 0x0001) && !Partition::joins(0x8001, 0x8002));
    }
}
