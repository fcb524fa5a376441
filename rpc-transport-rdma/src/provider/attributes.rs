//! What devices and ports say about themselves, as plain values.

use std::fmt;

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
}

/// What carries the packets of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: ports are addressed by LID.
    InfiniBand,
    /// Ethernet (RoCE): ports are addressed by GID.
    Ethernet,
}

/// Whether a port carries traffic.
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
    /// Whether it carries traffic.
    pub state: PortState,
    /// Payload of a packet on the path as the port has it now.
    pub active_mtu: Mtu,
    /// Longest message in bytes.
    pub message_len_max: u32,
    /// Local identifier; meaningful on InfiniBand only.
    pub lid: u16,
    /// What carries its packets.
    pub link_layer: LinkLayer,
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
    fn only_the_five_sizes_are_mtus() {
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu));
        }
        for bytes in [0, 255, 1500, u16::MAX] {
            assert_eq!(Mtu::from_bytes(bytes), None);
        }
        assert!(Mtu::B256 < Mtu::B4096);
    }
}
