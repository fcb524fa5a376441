//! The facts in files: sysfs, procfs and `/dev`, below a root.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use super::facts::{
    Container, Counter, Device, Facts, Gid, Interface, Machine, Node, NumaNode, Port, Process,
};
use super::files::{Root, try_open};

/// The folder of RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";
/// The folder of their character devices.
const NODES: &str = "/sys/class/infiniband_verbs";
/// Folders of libibverbs' providers, below which each architecture may have one more.
const PROVIDERS: [&str; 3] = ["/usr/lib/libibverbs", "/usr/lib64/libibverbs", "/usr/lib"];

const DEVICES_MAX: usize = 64;
const PORTS_MAX: usize = 8;
const GIDS_MAX: u16 = 256;
const INTERFACES_MAX: usize = 256;

/// Number of `CAP_IPC_LOCK` (`linux/capability.h`).
const CAP_IPC_LOCK: u64 = 14;

/// Counters of packets that were lost or repeated, in the names of mlx5, bnxt_re, irdma and rxe.
const LOSSES: [&str; 7] = [
    "local_ack_timeout_err",
    "out_of_sequence",
    "packet_seq_err",
    "retry_exceeded_err",
    "roce_slow_restart",
    "RetransSegs",
    "to_retransmits",
];

/// Reads all facts that are in files.
pub(crate) fn gather(root: &Root) -> Facts {
    let devices = root.names(DEVICES);
    Facts {
        kernel: root.line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
        container: container(root),
        is_netns_exclusive: root
            .line("/sys/module/ib_core/parameters/netns_mode")
            .map(|it| it == "N"),
        provider_count: PROVIDERS.iter().map(|folder| provider_count(root, folder)).sum(),
        devices: devices.iter().take(DEVICES_MAX).map(|name| device(root, name)).collect(),
        interfaces: interfaces(root),
        process: process(root),
        machine: machine(root),
        ..Facts::default()
    }
}

fn container(root: &Root) -> Option<Container> {
    let is_kubernetes =
        root.exists("/var/run/secrets/kubernetes.io") || root.exists("/run/secrets/kubernetes.io");
    match () {
        () if is_kubernetes => Some(Container::Kubernetes),
        () if root.exists("/run/.containerenv") => Some(Container::Podman),
        () if root.exists("/.dockerenv") => Some(Container::Docker),
        () => None,
    }
}

fn provider_count(root: &Root, folder: &str) -> usize {
    let providers =
        |folder: &str| root.names(folder).iter().filter(|name| name.contains("-rdmav")).count();
    if folder.ends_with("/libibverbs") {
        return providers(folder);
    }
    let names = root.names(folder).into_iter().filter(|name| name.ends_with("-linux-gnu"));
    names.map(|name| providers(&format!("{folder}/{name}/libibverbs"))).sum()
}

fn device(root: &Root, name: &str) -> Device {
    let folder = format!("{DEVICES}/{name}");
    let under = |path: &str| format!("{folder}/{path}");
    let mut interfaces = root.names(&under("device/net"));
    // Soft-RoCE and Soft-iWARP name their interface in this file.
    interfaces.extend(root.line(&under("parent")));
    let pci = root.link_name(&under("device"));
    let driver = root.link_name(&under("device/driver"));
    let ports: Vec<u8> =
        root.names(&under("ports")).iter().filter_map(|number| number.parse().ok()).collect();
    let mut device = Device {
        name: name.to_owned(),
        driver: driver.or_else(|| software_driver(name)),
        firmware: root.line(&under("fw_ver")),
        pci: pci.filter(|_| root.exists(&under("device/vendor"))),
        numa_node: root.number(&under("device/numa_node")),
        iommu: root.line(&under("device/iommu_group/type")),
        node: node(root, name),
        ports: ports.iter().take(PORTS_MAX).map(|port| self::port(root, &folder, *port)).collect(),
        interfaces,
        opened: None,
    };
    for port in &mut device.ports {
        port.has_ecn = ecn(root, &device.interfaces);
    }
    device
}

/// The driver of a device without a bus, by the name that administrators give it.
fn software_driver(name: &str) -> Option<String> {
    let driver = ["rxe", "siw"].into_iter().find(|driver| name.starts_with(driver));
    driver.map(str::to_owned)
}

fn node(root: &Root, device: &str) -> Node {
    let is_device = |node: &String| {
        root.line(&format!("{NODES}/{node}/ibdev")).is_some_and(|name| name == device)
    };
    let Some(name) = root.names(NODES).into_iter().find(is_device) else { return Node::NoModule };
    match try_open(&root.path(&format!("/dev/infiniband/{name}"))) {
        Ok(()) => Node::Usable(name),
        Err(error) if error.kind() == ErrorKind::NotFound => Node::Missing(name),
        Err(error) => Node::Denied { name, reason: error.to_string() },
    }
}

fn port(root: &Root, device: &str, number: u8) -> Port {
    let folder = format!("{device}/ports/{number}");
    let under = |path: &str| format!("{folder}/{path}");
    // `4: ACTIVE`
    let after_colon = |text: String| match text.split_once(": ") {
        Some((_, name)) => name.to_owned(),
        None => text,
    };
    let read = |path: &str| root.line(&under(path)).map(after_colon).unwrap_or_default();
    let loss = |name: &&str| {
        let count = root.number::<u64>(&under(&format!("hw_counters/{name}")))?;
        (count > 0).then(|| Counter { name: (*name).to_owned(), count })
    };
    Port {
        number,
        state: read("state"),
        physical_state: read("phys_state"),
        link_layer: read("link_layer"),
        gigabits: root.number(&under("rate")),
        lid: root.line(&under("lid")),
        gids: (0..GIDS_MAX).filter_map(|index| gid(root, &folder, index)).collect(),
        losses: LOSSES.iter().filter_map(loss).collect(),
        mtu: None,
        has_ecn: None,
    }
}

fn gid(root: &Root, port: &str, index: u16) -> Option<Gid> {
    let address: Ipv6Addr = root.line(&format!("{port}/gids/{index}"))?.parse().ok()?;
    // An empty entry is zero, or the subnet's prefix alone.
    if address.octets()[8..] == [0; 8] {
        return None;
    }
    let read = |name: &str| root.line(&format!("{port}/gid_attrs/{name}/{index}"));
    let kind = read("types").unwrap_or_else(|| "IB".to_owned());
    Some(Gid {
        index,
        address: IpAddr::from(address).to_canonical(),
        kind,
        interface: read("ndevs"),
    })
}

/// Returns true if an interface has ECN on for some priority, in mlx5's files.
fn ecn(root: &Root, interfaces: &[String]) -> Option<bool> {
    let priorities = interfaces.iter().flat_map(|interface| {
        let folder = format!("/sys/class/net/{interface}/ecn/roce_np/enable");
        (0..8).filter_map(move |priority| root.number::<u8>(&format!("{folder}/{priority}")))
    });
    priorities.map(|enabled| enabled != 0).reduce(|any, enabled| any || enabled)
}

fn interfaces(root: &Root) -> Vec<Interface> {
    let interface = |name: String| {
        let mtu = root.number(&format!("/sys/class/net/{name}/mtu"));
        Interface { name, mtu, addresses: Vec::new() }
    };
    root.names("/sys/class/net").into_iter().take(INTERFACES_MAX).map(interface).collect()
}

fn process(root: &Root) -> Process {
    let status = root.text("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    let has_ipc_lock = |set: &str| {
        let set = u64::from_str_radix(&field(set), 16).unwrap_or_default();
        set >> CAP_IPC_LOCK & 1 == 1
    };
    let limits = root.text("/proc/self/limits").unwrap_or_default();
    // The name has spaces, and then the soft limit comes.
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line?.split_whitespace().next()?.parse().ok()
    };
    Process {
        // The second is the effective user's.
        user: field("Uid").split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0),
        memlock: limit("Max locked memory"),
        open_files: limit("Max open files"),
        has_ipc_lock: has_ipc_lock("CapEff"),
        may_have_ipc_lock: has_ipc_lock("CapBnd"),
        processors: field("Cpus_allowed_list").chars().take(1_024).collect(),
    }
}

fn machine(root: &Root) -> Machine {
    let huge = root.line("/sys/kernel/mm/transparent_hugepage/enabled");
    let in_brackets = |text: String| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    let memory = root.text("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    let third = |path: &str| root.line(path)?.split_whitespace().nth(2)?.parse().ok();
    Machine {
        transparent_huge_pages: huge.and_then(in_brackets),
        free_huge_pages: free.and_then(|it| it.trim().parse().ok()).unwrap_or_default(),
        clock_ahead: clock_ahead(root),
        tcp_receive_max: third("/proc/sys/net/ipv4/tcp_rmem"),
        tcp_send_max: third("/proc/sys/net/ipv4/tcp_wmem"),
        numa_nodes: numa_nodes(root),
    }
}

fn clock_ahead(root: &Root) -> Option<i64> {
    let hardware: i64 = root.number("/sys/class/rtc/rtc0/since_epoch")?;
    let system = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(system).ok()?.checked_sub(hardware)
}

fn numa_nodes(root: &Root) -> Vec<NumaNode> {
    const FOLDER: &str = "/sys/devices/system/node";
    let node = |name: String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        Some(NumaNode { number, processors: root.line(&format!("{FOLDER}/{name}/cpulist"))? })
    };
    root.names(FOLDER).into_iter().filter_map(node).collect()
}
