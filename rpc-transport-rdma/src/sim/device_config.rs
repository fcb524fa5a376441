//! What a simulated device is like.

use std::net::IpAddr;

use crate::sys::provider::{DeviceAttributes, Gid, Mtu, ReceiveDrain, ReceiveOrder};

/// What a simulated device is like.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimDeviceConfig {
    /// Name by which it is opened.
    pub name: String,
    /// GIDs of its port.
    pub gids: Vec<Gid>,
    /// Its limits. Those of Soft-RoCE by default, where that has round ones.
    pub attributes: DeviceAttributes,
    /// MTU of its port; 4096 by default.
    pub mtu: Mtu,
    /// The longest message; 8 MiB by default.
    pub message_len_max: u32,
    /// The most that can be sent inline; 512 bytes by default.
    pub inline_max: u32,
    /// Why its READs are not to be trusted, as a driver's are that are known to complete short;
    /// `None` by default. [`SimFaults::short_read`](super::SimFaults::short_read) makes READs
    /// short.
    pub read_defect: Option<String>,
    /// What programs are told of the receive slots of a queue pair that dies: by default that they
    /// are told of the last, and that none is missing then. [`SimFaults`](super::SimFaults) make it
    /// otherwise.
    pub receive_drain: ReceiveDrain,
}

impl SimDeviceConfig {
    /// A device whose port has these addresses.
    #[must_use]
    pub fn new(name: &str, addresses: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            gids: addresses.iter().copied().map(Gid::from_ip).collect(),
            attributes: DeviceAttributes {
                port_count: 1,
                queue_pairs_max: 65_536,
                send_depth_max: 16_384,
                completions_max: 32_767,
                shared_receives_max: 16_384,
                windows_max: 65_536,
                reads_in_max: 16,
                reads_out_max: 16,
            },
            mtu: Mtu::B4096,
            message_len_max: 8 << 20,
            inline_max: 512,
            read_defect: None,
            receive_drain: ReceiveDrain { order: ReceiveOrder::Posted, ..ReceiveDrain::SPECIFIED },
        }
    }
}
