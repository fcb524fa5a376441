//! The configuration of a simulated device.

use std::net::IpAddr;

use super::port::{SimGid, SimPort};
use crate::sys::provider::{DeviceAttributes, ReceiveDrain, ReceiveOrder};

/// Memory that the queues of a simulated device lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimQueueMemory {
    /// The kernel's, as with Soft-RoCE. Only registered memory is locked.
    Kernel,
    /// The process's, as much as libmlx5 takes. It counts toward
    /// [`SimFaults::memory_lock_bytes`](super::SimFaults::memory_lock_bytes).
    Mlx5,
}

/// The configuration of a simulated device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimDeviceConfig {
    /// Name by which it is opened.
    pub name: String,
    /// Its ports, 1 to 8. One by default.
    pub ports: Vec<SimPort>,
    /// Its limits. Those of Soft-RoCE by default, where that has round ones. `port_count` follows
    /// from `ports`.
    pub attributes: DeviceAttributes,
    /// The longest message; 8 MiB by default.
    pub message_len_max: u32,
    /// The most that can be sent inline; 512 bytes by default.
    pub inline_max: u32,
    /// Memory of its queues. The kernel's by default.
    pub queue_memory: SimQueueMemory,
    /// Why its READs are not to be trusted, as a driver's are that are known to complete short;
    /// `None` by default. [`SimFaults::short_read`](super::SimFaults::short_read) makes READs
    /// short.
    pub read_defect: Option<String>,
    /// Report on the receive slots of a queue pair that dies. By default programs hear of the last
    /// receive, and then none is missing. [`SimFaults`](super::SimFaults) change that.
    pub receive_drain: ReceiveDrain,
}

impl SimDeviceConfig {
    /// A device with one port, which has these addresses.
    #[must_use]
    pub fn new(name: &str, addresses: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            ports: vec![SimPort::new(addresses)],
            attributes: DeviceAttributes {
                port_count: 1,
                queue_pairs_max: 65_536,
                send_depth_max: 16_384,
                completions_max: 32_767,
                completion_vectors: 8,
                shared_receives_max: 16_384,
                windows_max: 65_536,
                reads_in_max: 16,
                reads_out_max: 16,
                responder_reads_max: 1 << 20,
            },
            message_len_max: 8 << 20,
            inline_max: 512,
            queue_memory: SimQueueMemory::Kernel,
            read_defect: None,
            receive_drain: ReceiveDrain { order: ReceiveOrder::Posted, ..ReceiveDrain::SPECIFIED },
        }
    }
    /// The entries of all its GID tables.
    pub(crate) fn gids(&self) -> impl Iterator<Item = &SimGid> {
        self.ports.iter().flat_map(|port| &port.gids)
    }

    /// The entry at a position of a port's GID table; ports count from 1.
    pub(crate) fn gid_at(&self, port: u8, index: u8) -> Option<&SimGid> {
        let port = self.ports.get(usize::from(port).checked_sub(1)?)?;
        port.gids.iter().find(|entry| entry.index == index)
    }
}
