//! Findings about the library, the devices and their ports. Pure.

use super::facts::{Container, Device, Facts, Node, Port};
use super::finding::{Cause, Finding};

/// MTU of an Ethernet interface that carries packets of 4,096 bytes with their headers.
const FULL_ETHERNET_MTU: u32 = 4_200;

/// Largest payload of a packet.
const FULL_MTU: u16 = 4_096;

/// Most counters and GIDs in one line.
const SHOWN_MAX: usize = 16;

/// The findings about libibverbs and its providers.
pub(crate) fn library(facts: &Facts) -> Vec<Finding> {
    const NAME: &str = "libibverbs";
    let install = "apt-get install libibverbs1 ibverbs-providers";
    let mut findings = Vec::new();
    match &facts.library_fault {
        Some(fault) if fault.is_missing => findings.push(
            Finding::fault(NAME, Cause::Library, &*fault.reason).fix(in_image(facts, install)),
        ),
        Some(fault) => {
            let again = "apt-get install --reinstall libibverbs1 ibverbs-providers";
            let fault = Finding::fault(NAME, Cause::Library, &*fault.reason);
            findings.push(fault.fix(in_image(facts, again)));
        }
        None => {
            let text = format!("installed, with {} providers", facts.provider_count);
            findings.push(Finding::ok(NAME, text));
        }
    }
    if facts.library_fault.is_none() && facts.provider_count == 0 && facts.devices.is_empty() {
        let text = "no provider is in /usr/lib/*/libibverbs: libibverbs can drive no device";
        let install = in_image(facts, "apt-get install ibverbs-providers");
        findings.push(Finding::fault("provider", Cause::Provider, text).fix(install));
    }
    findings
}

/// A command of the host, or of the image that a container is made of.
fn in_image(facts: &Facts, command: &str) -> String {
    match facts.container {
        Some(_) => format!("{command}   # in the image"),
        None => command.to_owned(),
    }
}

/// The findings about each device.
pub(crate) fn devices(facts: &Facts) -> Vec<Finding> {
    if facts.devices.is_empty() {
        return vec![no_device(facts)];
    }
    facts.devices.iter().flat_map(|device| device_findings(facts, device)).collect()
}

fn no_device(facts: &Facts) -> Finding {
    if facts.is_netns_exclusive == Some(true) {
        let text = "no RDMA device belongs to this network namespace, and the kernel gives each \
                    its own";
        return exclusive(text);
    }
    let fault = Finding::fault(
        "device",
        Cause::DeviceNode,
        match facts.container {
            Some(_) => "no RDMA device in /sys/class/infiniband of this container",
            None => "no RDMA device in /sys/class/infiniband",
        },
    );
    match facts.container {
        Some(container) => fault.fix(device_plugin(container, "uverbs0")),
        None => fault
            .fix("lspci -nn | grep -Ei 'mellanox|infiniband|ethernet'   # names the NIC")
            .fix("modprobe -a ib_uverbs mlx5_ib   # the driver of the NIC in place of mlx5_ib"),
    }
}

/// A fault of devices that belong to another network namespace.
pub(crate) fn exclusive(text: &str) -> Finding {
    Finding::fault("namespace", Cause::GidTable, text)
        .fix("rdma system set netns shared   # on the host, before containers start")
        .fix("rdma dev set mlx5_0 netns NAME   # or moves one device into the container")
}

/// The way to give a container the device node.
fn device_plugin(container: Container, node: &str) -> String {
    match container {
        Container::Docker => format!("docker run --device /dev/infiniband/{node} .."),
        Container::Podman => format!("podman run --device /dev/infiniband/{node} .."),
        Container::Kubernetes => {
            "kubectl apply -f deploy/kubernetes/shared-device-plugin.yaml   # and `rdma/hca: 1` in \
             the container's limits"
                .to_owned()
        }
    }
}

fn device_findings(facts: &Facts, device: &Device) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("device", describe(device))];
    findings.extend(node(facts, device));
    findings.extend(opened(facts, device));
    findings.extend(device.ports.iter().flat_map(|port| port_findings(device, port)));
    findings
}

/// Describes a device as `rdma link` and `ibv_devinfo` do.
fn describe(device: &Device) -> String {
    let unknown = || "unknown".to_owned();
    let mut text = format!("{}: {}", device.name, device.driver.clone().unwrap_or_else(unknown));
    for (label, value) in [
        ("firmware", device.firmware.clone().filter(|it| it != "0.0.0")),
        ("pci", device.pci.clone()),
        ("numa", device.numa_node.map(|it| it.to_string())),
        ("on", (!device.interfaces.is_empty()).then(|| device.interfaces.join(" "))),
    ] {
        text.extend(value.map(|value| format!("  {label} {value}")));
    }
    if let Some(opened) = device.opened.as_ref().filter(|opened| opened.fault.is_none()) {
        let (reads, receives) = (opened.max_reads, opened.max_shared_receives);
        let windows = opened.max_windows;
        text.push_str(&format!("  reads {reads}  srq {receives}  windows {windows}"));
    }
    text
}

fn node(facts: &Facts, device: &Device) -> Option<Finding> {
    let fault = |text| Finding::fault("node", Cause::DeviceNode, text);
    Some(match &device.node {
        Node::Usable(name) => Finding::ok("node", format!("/dev/infiniband/{name}")),
        Node::NoModule => {
            let text = format!("{} has no uverbs device: ib_uverbs is not loaded", device.name);
            fault(text).fix("modprobe ib_uverbs   # on the host")
        }
        Node::Missing(name) => {
            let text = format!("{} has no /dev/infiniband/{name} here", device.name);
            let command = match facts.container {
                Some(container) => device_plugin(container, name),
                None => format!("udevadm trigger /sys/class/infiniband_verbs/{name}"),
            };
            fault(text).fix(command)
        }
        Node::Denied { name, reason } => {
            let text = format!("/dev/infiniband/{name} cannot be opened: {reason}");
            if facts.is_netns_exclusive == Some(true) && is_not_permitted(reason) {
                return Some(exclusive(&text));
            }
            match facts.container {
                Some(container) => fault(text).fix(device_plugin(container, name)),
                None => fault(text).fix(format!("chmod 0666 /dev/infiniband/{name}")),
            }
        }
    })
}

/// Returns true for the kernel's answer to a process of another network namespace (`EPERM`).
fn is_not_permitted(reason: &str) -> bool {
    reason.contains("Operation not permitted")
}

fn opened(facts: &Facts, device: &Device) -> Vec<Finding> {
    let is_usable = matches!(device.node, Node::Usable(_));
    if facts.library_fault.is_some() || !is_usable {
        return Vec::new();
    }
    let name = &device.name;
    let is_exclusive = facts.is_netns_exclusive == Some(true);
    let Some(opened) = &device.opened else {
        if is_exclusive && facts.provider_count > 0 {
            return vec![exclusive(&format!("{name} belongs to another network namespace"))];
        }
        let driver = device.driver.as_deref().unwrap_or("its driver");
        let text = format!("libibverbs has no provider of {driver}, and does not list {name}");
        let install = in_image(facts, "apt-get install ibverbs-providers");
        return vec![Finding::fault("provider", Cause::Provider, text).fix(install)];
    };
    let mut findings = Vec::new();
    if let Some(reason) = &opened.fault {
        let text = format!("{name}: {reason}");
        findings.push(match is_exclusive && is_not_permitted(reason) {
            true => exclusive(&text),
            false => Finding::other_fault("open", text).fix("dmesg | tail -n 50"),
        });
        return findings;
    }
    if let Some(defect) = &opened.read_defect {
        let fix = "apt-get install linux-image-6.1-amd64   # Soft-RoCE passed the check on 6.1";
        findings.push(Finding::fault("reads", Cause::ShortReads, defect.clone()).fix(fix));
    }
    if opened.max_reads == 0 {
        let text = format!("{name} grants no RDMA READ: max_rd_atomic is 0");
        let pci = device.pci.as_deref().unwrap_or("PCI-ADDRESS");
        let fix = format!("mstflint -d {pci} query   # then update firmware and driver");
        findings.push(Finding::fault("reads", Cause::MaxRdAtomic, text).fix(fix));
    }
    if opened.max_shared_receives == 0 {
        let text = format!("{name} has no shared receive queues, which farcall needs");
        findings.push(Finding::other_fault("srq", text));
    }
    findings
}

fn port_findings(device: &Device, port: &Port) -> Vec<Finding> {
    let text = describe_port(device, port);
    if port.is_active() {
        let mut findings = vec![Finding::ok("port", text)];
        findings.extend(losses(device, port));
        return findings;
    }
    let interface = device.interfaces.first().map_or("INTERFACE", String::as_str);
    let fault = Finding::fault("port", Cause::PortDown, text);
    vec![match port.state.as_str() {
        "INIT" if !port.is_ethernet() => {
            fault.fix("systemctl start opensm   # no subnet manager has configured the port")
        }
        _ if port.is_ethernet() => fault.fix(format!("ip link set {interface} up")),
        _ => fault.fix(format!("ibportstate -D 0 {} enable   # and check the cable", port.number)),
    }]
}

/// Describes a port as `ibv_devinfo`, `show_gids` and `ibdev2netdev` do.
fn describe_port(device: &Device, port: &Port) -> String {
    let mut text = format!("{}:{} {}", device.name, port.number, port.state);
    for value in [
        Some(port.physical_state.clone()).filter(|it| !it.is_empty()),
        Some(port.link_layer.clone()).filter(|it| !it.is_empty()),
        port.gigabits.map(|it| format!("{it} Gb/s")),
        port.mtu.map(|it| format!("mtu {it}")),
        port.lid.clone().filter(|_| !port.is_ethernet()).map(|it| format!("lid {it}")),
    ] {
        text.extend(value.map(|value| format!("  {value}")));
    }
    let gids = port.gids.iter().take(SHOWN_MAX).map(|gid| {
        let interface = gid.interface.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
        format!("{} {} ({}{interface})", gid.index, gid.address, gid.kind)
    });
    let gids: Vec<_> = gids.collect();
    let left_out = port.gids.len().saturating_sub(SHOWN_MAX);
    text.push_str(if gids.is_empty() { "  no GID" } else { "  gids " });
    text.push_str(&gids.join(", "));
    if left_out > 0 {
        text.push_str(&format!(" and {left_out} more"));
    }
    text
}

/// The findings about congestion control and lost packets of an Ethernet port.
fn losses(device: &Device, port: &Port) -> Option<Finding> {
    if !port.is_ethernet() {
        return None;
    }
    const NAME: &str = "congestion";
    let interface = device.interfaces.first().map_or("INTERFACE", String::as_str);
    let with_fixes = |finding: Finding| {
        finding
            .fix(format!("dcb pfc set dev {interface} prio-pfc 3:on"))
            .fix(format!("dcb app add dev {interface} dscp-prio 26:3"))
    };
    let place = format!("{}:{}", device.name, port.number);
    if !port.losses.is_empty() {
        let counts = port.losses.iter().map(|it| format!("{} {}", it.name, it.count));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let text = format!("{place} has lost or repeated packets: {counts}");
        return Some(with_fixes(Finding::advice(NAME, Cause::Congestion, text)));
    }
    match port.has_ecn {
        Some(true) => Some(Finding::ok(NAME, format!("{place} reacts to ECN"))),
        Some(false) => {
            let text = format!("{place} does not react to ECN: load will lose packets");
            Some(with_fixes(Finding::advice(NAME, Cause::Congestion, text)))
        }
        None if device.is_software() => None,
        None => {
            let text = format!("{place}: PFC, ECN and DSCP are not shown here");
            let fix = format!("dcb pfc show dev {interface}; dcb app show dev {interface}");
            Some(Finding::advice(NAME, Cause::Congestion, text).fix(fix))
        }
    }
}

/// The findings about the MTU of active Ethernet ports.
pub(crate) fn mtu(facts: &Facts) -> Vec<Finding> {
    let ports = facts.ports().filter(|(_, port)| port.is_active() && port.is_ethernet());
    let ports: Vec<_> =
        ports.filter_map(|(device, port)| Some((device, port, port.mtu?))).collect();
    let largest = ports.iter().map(|(.., mtu)| *mtu).max().unwrap_or_default();
    let finding = |(device, port, mtu): &(&Device, &Port, u16)| {
        let place = format!("{}:{}", device.name, port.number);
        if *mtu == FULL_MTU {
            return Finding::ok("mtu", format!("{place} sends packets of {mtu} bytes"));
        }
        let interface = device.interfaces.first().map_or("INTERFACE", String::as_str);
        let text = match *mtu < largest {
            true => format!(
                "MTU mismatch: {place} sends packets of {mtu} bytes, and another port {largest}"
            ),
            false => format!("{place} sends packets of {mtu} bytes, and {FULL_MTU} are possible"),
        };
        let fix = format!("ip link set {interface} mtu {FULL_ETHERNET_MTU}   # on both hosts");
        match *mtu < largest {
            true => Finding::fault("mtu", Cause::Mtu, text).fix(fix),
            false => Finding::advice("mtu", Cause::Mtu, text).fix(fix),
        }
    };
    ports.iter().map(finding).collect()
}
