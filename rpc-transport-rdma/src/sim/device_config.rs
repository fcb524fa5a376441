//! The configuration of a simulated device.

use std::net::IpAddr;

use super::port::{SimGid, SimPort};
use crate::sys::provider::{DeviceAttributes, ReceiveDrain, ReceiveOrder};

/// The memory that the queues of a simulated device lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimQueueMemory {
    /// The kernel's, as with Soft-RoCE. Only registered memory is locked.
    Kernel,
    /// The process's, as much as libmlx5 takes. It counts toward
    /// [`SimFaults::memory_lock_bytes`](super::SimFaults::memory_lock_bytes).
    Mlx5,
}

/// The configuration of a simulated device, for
/// [`SimNetwork::add_device_with`](super::SimNetwork::add_device_with).
///
/// Its limits are those of Soft-RoCE, where that has round ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimDeviceConfig {
    /// Name by which it is opened.
    #[doc(hidden)]
    pub name: String,
    /// Its ports, 1 to 8. One by default.
    #[doc(hidden)]
    pub ports: Vec<SimPort>,
    /// Its limits. Those of Soft-RoCE by default, where that has round ones. `port_count` follows
    /// from `ports`.
    #[doc(hidden)]
    pub attributes: DeviceAttributes,
    /// The longest message; 8 MiB by default.
    #[doc(hidden)]
    pub message_len_max: u32,
    /// The most that can be sent inline; 512 bytes by default.
    #[doc(hidden)]
    pub inline_max: u32,
    /// Memory of its queues. The kernel's by default.
    #[doc(hidden)]
    pub queue_memory: SimQueueMemory,
    /// Why its READs are not to be trusted, as a driver's are that are known to complete short;
    /// `None` by default. [`SimFaults::short_read`](super::SimFaults::short_read) makes READs
    /// short.
    #[doc(hidden)]
    pub read_defect: Option<String>,
    /// Report on the receive slots of a queue pair that dies. By default programs hear of the last
    /// receive, and then none is missing. [`SimFaults`](super::SimFaults) change that.
    #[doc(hidden)]
    pub receive_drain: ReceiveDrain,
}

impl SimDeviceConfig {
    /// A device with one RoCE v2 port, which has these addresses.
    #[must_use]
    pub fn new(name: &str, addresses: &[IpAddr]) -> Self {
        Self::with_ports(name, vec![SimPort::new(addresses)])
    }

    /// A device with 1 to 8 ports, which count from 1.
    #[must_use]
    pub fn with_ports(name: &str, ports: Vec<SimPort>) -> Self {
        Self {
            name: name.to_owned(),
            ports,
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

    /// Sets the memory that its queues lie in. Default [`SimQueueMemory::Kernel`].
    #[must_use]
    pub fn with_queue_memory(mut self, queue_memory: SimQueueMemory) -> Self {
        self.queue_memory = queue_memory;
        self
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
