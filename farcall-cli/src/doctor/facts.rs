//! The facts that `doctor` decides by: plain values, so that a test can build any host.

use std::net::IpAddr;

use serde::Serialize;

/// A host as a process on it sees it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    /// Release of the kernel, as `uname -r` prints it.
    pub(crate) kernel: String,
    /// The container that the process is in.
    pub(crate) container: Option<Container>,
    /// True if the kernel gives each network namespace RDMA devices of its own (`rdma system`).
    pub(crate) is_netns_exclusive: Option<bool>,
    /// Providers of libibverbs in the folders where distributions install them.
    pub(crate) provider_count: usize,
    /// Why libibverbs cannot be used.
    pub(crate) library_fault: Option<LibraryFault>,
    pub(crate) devices: Vec<Device>,
    pub(crate) interfaces: Vec<Interface>,
    /// Local addresses with the port that serves each, or the reason why none does.
    pub(crate) addresses: Vec<Address>,
    /// True if one address was asked about.
    pub(crate) is_address_given: bool,
    pub(crate) process: Process,
    pub(crate) machine: Machine,
}

/// A kind of container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Container {
    Docker,
    Podman,
    Kubernetes,
}

/// Why libibverbs cannot be used.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LibraryFault {
    pub(crate) reason: String,
    pub(crate) is_missing: bool,
}

/// An RDMA device in sysfs, and as libibverbs opened it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) driver: Option<String>,
    pub(crate) firmware: Option<String>,
    /// Its address on the PCI bus.
    pub(crate) pci: Option<String>,
    pub(crate) interfaces: Vec<String>,
    pub(crate) numa_node: Option<u32>,
    /// Type of its IOMMU group: `DMA-FQ` or `identity`, for example.
    pub(crate) iommu: Option<String>,
    pub(crate) node: Node,
    pub(crate) ports: Vec<Port>,
    /// The device as libibverbs opened it; absent if libibverbs does not list it.
    pub(crate) opened: Option<Opened>,
}

/// The character device of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    /// The kernel has none: `ib_uverbs` is not loaded.
    #[default]
    NoModule,
    /// `/dev/infiniband` does not have the one of this name.
    Missing(String),
    /// It cannot be opened, for this reason.
    Denied { name: String, reason: String },
    /// It can be opened.
    Usable(String),
}

/// An open device.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Opened {
    pub(crate) fault: Option<String>,
    pub(crate) read_defect: Option<String>,
    pub(crate) max_reads: u8,
    pub(crate) max_shared_receives: u32,
    pub(crate) max_windows: u32,
}

/// A port of a device.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Port {
    pub(crate) number: u8,
    /// `ACTIVE`, `DOWN`, `INIT` or `ARMED`.
    pub(crate) state: String,
    /// `LinkUp`, `Disabled` or `Polling`, for example.
    pub(crate) physical_state: String,
    pub(crate) link_layer: String,
    pub(crate) gigabits: Option<f64>,
    pub(crate) lid: Option<String>,
    /// Payload of a packet in bytes, if the device could be opened.
    pub(crate) mtu: Option<u16>,
    pub(crate) gids: Vec<Gid>,
    /// Counters of lost packets that are not 0.
    pub(crate) losses: Vec<Counter>,
    /// True if the NIC reacts to ECN on some priority, where its driver shows that.
    pub(crate) has_ecn: Option<bool>,
}

/// A valid entry of a port's GID table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Gid {
    pub(crate) index: u16,
    pub(crate) address: IpAddr,
    pub(crate) kind: String,
    pub(crate) interface: Option<String>,
}

/// A counter of a port.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// A network interface of this network namespace.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mtu: Option<u32>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// A local address, and the answer of farcall's own search for a port.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Address {
    pub(crate) address: IpAddr,
    /// The port that serves it.
    pub(crate) port: Option<String>,
    /// Why no port serves it.
    pub(crate) reason: Option<String>,
}

/// Limits and rights of this process.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Process {
    pub(crate) user: u32,
    /// Bytes that it may lock; absent without a limit.
    pub(crate) memlock: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// True if it has `CAP_IPC_LOCK`, and so no limit on locked memory.
    pub(crate) has_ipc_lock: bool,
    /// True if a program that it runs could have `CAP_IPC_LOCK`.
    pub(crate) may_have_ipc_lock: bool,
    /// Processors that it may run on, as `0-3,8`.
    pub(crate) processors: String,
}

/// Settings of the kernel, and the clock.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    /// The mode of transparent huge pages in force.
    pub(crate) transparent_huge_pages: Option<String>,
    pub(crate) free_huge_pages: u64,
    /// Seconds that the system's clock is ahead of the hardware's.
    pub(crate) clock_ahead: Option<i64>,
    pub(crate) tcp_receive_max: Option<u64>,
    pub(crate) tcp_send_max: Option<u64>,
    /// Processors of each NUMA node.
    pub(crate) numa_nodes: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NumaNode {
    pub(crate) number: u32,
    pub(crate) processors: String,
}

impl Facts {
    /// Returns true if an interface of this network namespace has the address.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.addresses.contains(&address))
    }

    /// The devices with their ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&Device, &Port)> {
        self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }
}

impl Device {
    /// Returns true if the kernel does the device's work in software, or the driver is unknown.
    pub(crate) fn is_software(&self) -> bool {
        self.pci.is_none()
    }
}

impl Port {
    pub(crate) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    pub(crate) fn is_ethernet(&self) -> bool {
        self.link_layer == "Ethernet"
    }
}

impl Gid {
    pub(crate) fn is_roce_v2(&self) -> bool {
        self.kind == "RoCE v2"
    }

    /// Returns true for an address of one link, which every interface makes for itself.
    pub(crate) fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

/// Reads `0-3,8`. Numbers above 4,095 are left out.
pub(crate) fn processors(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(4_095))
    };
    let mut numbers: Vec<u32> = list.split(',').take(4_096).filter_map(range).flatten().collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
