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
