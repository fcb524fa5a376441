//! The causes over facts: a sound host, each cause put into it, and the messages in a golden file.

use serde_json::json;

use super::facts::{
    Address, Container, Counter, Device, Facts, Gid, Interface, LibraryFault, Machine, Node,
    NumaNode, Opened, Port, Process,
};
use super::finding::{Cause, Finding, Mark, PAGE};
use super::{host, path};

/// Messages of all causes, which `FARCALL_WRITE_GOLDEN=1` writes anew.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doctor.txt");

fn gid(index: u16, address: &str) -> Gid {
    let (address, interface) = (address.parse().unwrap(), Some("eth0".to_owned()));
    Gid { index, address, kind: "RoCE v2".to_owned(), interface }
}

/// A host with one mlx5 port at 10.0.0.1, on which nothing is wrong.
fn sound() -> Facts {
    let port = Port {
        number: 1,
        state: "ACTIVE".into(),
        physical_state: "LinkUp".into(),
        link_layer: "Ethernet".into(),
        gigabits: Some(100.0),
        mtu: Some(4_096),
        gids: vec![gid(0, "fe80::1"), gid(1, "10.0.0.1")],
        has_ecn: Some(true),
        ..Port::default()
    };
    let opened = Opened {
        max_reads: 16,
        max_shared_receives: 32_767,
        max_windows: 65_536,
        ..Opened::default()
    };
    let device = Device {
        name: "mlx5_0".into(),
        driver: Some("mlx5_core".into()),
        firmware: Some("16.35.2000".into()),
        pci: Some("0000:3b:00.0".into()),
        interfaces: vec!["eth0".into()],
        numa_node: Some(0),
        iommu: Some("identity".into()),
        node: Node::Usable("uverbs0".into()),
        ports: vec![port],
        opened: Some(opened),
    };
    let served = Address {
        address: "10.0.0.1".parse().unwrap(),
        port: Some("mlx5_0:1 (10.0.0.1)".into()),
        reason: None,
    };
    Facts {
        kernel: "6.1.0-50-amd64".into(),
        is_netns_exclusive: Some(false),
        provider_count: 17,
        devices: vec![device],
        interfaces: vec![Interface {
            name: "eth0".into(),
            mtu: Some(4_200),
            addresses: vec!["10.0.0.1".parse().unwrap()],
        }],
        addresses: vec![served],
        process: Process {
            memlock: None,
            open_files: Some(65_536),
            processors: "0-7".into(),
            ..Process::default()
        },
        machine: Machine {
            transparent_huge_pages: Some("madvise".into()),
            clock_ahead: Some(0),
            tcp_receive_max: Some(6 << 20),
            tcp_send_max: Some(4 << 20),
            numa_nodes: vec![
                NumaNode { number: 0, processors: "0-3".into() },
                NumaNode { number: 1, processors: "4-7".into() },
            ],
            ..Machine::default()
        },
        ..Facts::default()
    }
}

fn unserved(facts: &mut Facts, reason: &str) {
    facts.addresses[0].port = None;
    facts.addresses[0].reason = Some(reason.to_owned());
}

/// The findings about a sound host that `change` spoils.
fn changed(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = sound();
    change(&mut facts);
    host(&facts)
}

/// All causes, each with the findings that a host or a path with it gets.
fn rows() -> Vec<(Cause, Vec<Finding>)> {
    let mut rows = verbs_rows();
    rows.extend([
        (
            Cause::NoGid,
            changed(|facts| {
                facts.devices[0].ports[0].gids.truncate(1);
                unserved(facts, "no active RDMA port has the address 10.0.0.1");
            }),
        ),
        (
            Cause::ForeignGid,
            changed(|facts| {
                facts.devices[0].ports[0].gids.push(gid(2, "10.244.0.9"));
            }),
        ),
        (Cause::GidIndex, changed(|facts| facts.devices[0].ports[0].gids[1].index = 5)),
        (
            Cause::GidTable,
            changed(|facts| {
                facts.devices[0].ports[0].gids.clear();
                facts.is_netns_exclusive = Some(true);
                unserved(facts, "no active RDMA port has the address 10.0.0.1");
            }),
        ),
        (
            Cause::Nat,
            changed(|facts| {
                facts.container = Some(Container::Docker);
                facts.interfaces[0].addresses = vec!["172.17.0.2".parse().unwrap()];
                facts.addresses[0].address = "172.17.0.2".parse().unwrap();
                unserved(facts, "no active RDMA port has the address 172.17.0.2");
            }),
        ),
        (Cause::Memlock, changed(|facts| facts.process.memlock = Some(8 << 20))),
        (
            Cause::IpcLock,
            changed(|facts| {
                facts.process =
                    Process { may_have_ipc_lock: true, user: 1_000, ..facts.process.clone() };
                facts.process.memlock = Some(8 << 20);
            }),
        ),
    ]);
    rows.extend(path_rows());
    rows.extend(machine_rows());
    rows
}

/// The causes that only a path to a peer shows.
fn path_rows() -> Vec<(Cause, Vec<Finding>)> {
    vec![
        (Cause::Mtu, vec![path::read_fault("no answer within 10 s", "10.0.0.2")]),
        (
            Cause::Udp4791,
            vec![path::peer_fault(
                "rdma: the path could not be proven: no answer to a probe within 3000 ms",
                "10.0.0.2",
            )],
        ),
    ]
}

/// The causes that slow RDMA.
fn machine_rows() -> Vec<(Cause, Vec<Finding>)> {
    let device = |facts: &mut Facts, change: fn(&mut Device)| change(&mut facts.devices[0]);
    vec![
        (
            Cause::Congestion,
            changed(|facts| {
                let counter = Counter { name: "out_of_sequence".into(), count: 12 };
                facts.devices[0].ports[0].losses.push(counter);
            }),
        ),
        (Cause::Iommu, changed(|it| device(it, |it| it.iommu = Some("DMA-FQ".into())))),
        (Cause::Numa, changed(|facts| facts.process.processors = "4-7".into())),
        (
            Cause::HugePages,
            changed(|facts| {
                facts.machine.transparent_huge_pages = Some("never".into());
            }),
        ),
        (Cause::Clock, changed(|facts| facts.machine.clock_ahead = Some(-86_400 - 100))),
        (Cause::OpenFiles, changed(|facts| facts.process.open_files = Some(1_024))),
        (Cause::TcpBuffers, changed(|facts| facts.machine.tcp_send_max = Some(212_992))),
    ]
}

/// The causes that are seen at the library, the device and its port.
fn verbs_rows() -> Vec<(Cause, Vec<Finding>)> {
    let opened = |facts: &mut Facts, change: fn(&mut Opened)| {
        change(facts.devices[0].opened.as_mut().unwrap());
    };
    vec![
        (
            Cause::Library,
            changed(|facts| {
                let reason =
                    "libibverbs.so.1 is not installed (Debian: libibverbs1 ibverbs-providers)";
                facts.library_fault =
                    Some(LibraryFault { reason: reason.into(), is_missing: true });
                unserved(facts, reason);
            }),
        ),
        (
            Cause::Provider,
            changed(|facts| {
                facts.devices[0].opened = None;
                unserved(facts, "there is no RDMA device");
            }),
        ),
        (
            Cause::DeviceNode,
            changed(|facts| {
                facts.container = Some(Container::Kubernetes);
                facts.devices[0].node = Node::Missing("uverbs0".into());
                unserved(facts, "there is no RDMA device");
            }),
        ),
        (
            Cause::PortDown,
            changed(|facts| {
                facts.devices[0].ports[0].state = "DOWN".into();
                facts.devices[0].ports[0].physical_state = "Disabled".into();
                unserved(facts, "port 1 of mlx5_0 has the address 10.0.0.1 but is not active");
            }),
        ),
        (Cause::MaxRdAtomic, changed(|it| opened(it, |it| it.max_reads = 0))),
        (
            Cause::ShortReads,
            changed(|facts| {
                opened(facts, |it| {
                    let defect = "Soft-RoCE on Linux 6.12.9 completes READs before their data \
                                  arrived: 80 of 35186 under packet loss";
                    it.read_defect = Some(defect.into());
                });
                unserved(
                    facts,
                    "Soft-RoCE on Linux 6.12.9 completes READs before their data arrived",
                );
            }),
        ),
    ]
}

fn causes(findings: &[Finding]) -> Vec<Cause> {
    findings.iter().filter_map(|finding| finding.cause).collect()
}

#[test]
fn sound_host_has_no_cause() {
    let findings = host(&sound());
    assert!(findings.iter().all(|it| it.mark == Mark::Ok), "{findings:?}");
    assert_eq!(findings.last().unwrap().text, "can be offered at 10.0.0.1");
}

#[test]
fn each_cause_is_named_alone_with_a_fix_and_a_link() {
    let rows = rows();
    let mut named: Vec<_> = rows.iter().map(|(cause, _)| json!(cause).to_string()).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), 22);
    for (cause, findings) in rows {
        let mut seen = causes(&findings);
        // The right is lost where the limit is small.
        seen.retain(|other| !(cause == Cause::IpcLock && *other == Cause::Memlock));
        assert_eq!(seen, [cause], "{findings:?}");
        for finding in findings.iter().filter(|finding| finding.cause.is_some()) {
            assert_ne!(finding.mark, Mark::Ok);
            assert!(!finding.fixes.is_empty() && finding.link.is_some(), "{finding:?}");
        }
    }
}

#[test]
fn messages_are_those_of_the_file() {
    let mut text = String::new();
    for (cause, findings) in rows() {
        let name = json!(cause);
        text.push_str(&format!("=== {}\n", name.as_str().unwrap()));
        let spoiled = findings.iter().filter(|finding| finding.mark != Mark::Ok);
        for line in spoiled.flat_map(Finding::lines) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text.push_str("=== a sound host\n");
    for line in host(&sound()).iter().flat_map(Finding::lines) {
        text.push_str(&line);
        text.push('\n');
    }
    if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let held = std::fs::read_to_string(GOLDEN).unwrap();
    assert_eq!(held, text, "FARCALL_WRITE_GOLDEN=1 writes {GOLDEN} anew");
}

#[test]
fn links_lead_to_headings_of_the_book() {
    let page = format!("{}/../{PAGE}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).unwrap();
    let anchors: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.to_lowercase().replace(' ', "-").replace('`', ""))
        .collect();
    for (cause, _) in rows() {
        assert!(anchors.iter().any(|it| it == cause.anchor()), "{cause:?}: {anchors:?}");
    }
}

#[test]
fn a_host_without_anything_is_told_how_to_begin() {
    let findings = host(&Facts::default());
    assert!(causes(&findings).contains(&Cause::Provider), "{findings:?}");
    assert!(causes(&findings).contains(&Cause::DeviceNode), "{findings:?}");
    let verdict = findings.last().unwrap();
    assert_eq!((verdict.name, verdict.mark), ("rdma://", Mark::Fault));
}

#[test]
fn the_container_decides_the_command() {
    for (container, command) in [
        (Some(Container::Docker), "docker run --device /dev/infiniband/uverbs0"),
        (Some(Container::Podman), "podman run --device"),
        (Some(Container::Kubernetes), "kubectl apply -f deploy/kubernetes/shared-device-plugin"),
        (None, "udevadm trigger"),
    ] {
        let findings = changed(|facts| {
            facts.container = container;
            facts.devices[0].node = Node::Missing("uverbs0".into());
        });
        let finding = findings.iter().find(|it| it.cause == Some(Cause::DeviceNode)).unwrap();
        assert!(finding.fixes[0].starts_with(command), "{finding:?}");
    }
}

#[test]
fn other_forms_of_a_cause_are_named_too() {
    for (cause, findings) in [
        (Cause::DeviceNode, changed(|it| it.devices[0].node = Node::NoModule)),
        (
            Cause::DeviceNode,
            changed(|it| {
                let reason = "Permission denied (os error 13)".into();
                it.devices[0].node = Node::Denied { name: "uverbs0".into(), reason };
            }),
        ),
        (Cause::GidTable, changed(|it| it.devices[0].ports[0].gids.clear())),
        (
            Cause::GidTable,
            changed(|it| {
                it.is_netns_exclusive = Some(true);
                let reason = "Operation not permitted (os error 1)".into();
                it.devices[0].node = Node::Denied { name: "uverbs0".into(), reason };
            }),
        ),
        (
            Cause::GidTable,
            changed(|it| {
                it.is_netns_exclusive = Some(true);
                it.devices[0].opened = None;
            }),
        ),
        (
            Cause::GidTable,
            changed(|it| {
                it.is_netns_exclusive = Some(true);
                it.devices.clear();
            }),
        ),
        (
            Cause::Mtu,
            changed(|it| {
                let mut other = it.devices[0].clone();
                other.ports[0].mtu = Some(1_024);
                it.devices.push(other);
            }),
        ),
        (Cause::Mtu, changed(|it| it.devices[0].ports[0].mtu = Some(1_024))),
        (
            Cause::NoGid,
            changed(|it| {
                it.is_address_given = true;
                it.addresses[0].address = "127.0.0.1".parse().unwrap();
                unserved(it, "no active RDMA port has the address 127.0.0.1");
            }),
        ),
        (
            Cause::Nat,
            vec![path::peer_fault(
                "rdma: the server: the peer is at 10.0.0.9, but its RDMA port is said to be at \
                 10.1.0.9 (rdma.port_choice is address)",
                "h",
            )],
        ),
        (Cause::Memlock, changed(|it| it.process.memlock = Some(512 << 20))),
        (Cause::Clock, vec![path::tls_fault("invalid peer certificate: certificate expired: ..")]),
        (Cause::Congestion, changed(|it| it.devices[0].ports[0].has_ecn = Some(false))),
        (Cause::Congestion, changed(|it| it.devices[0].ports[0].has_ecn = None)),
    ] {
        assert!(causes(&findings).contains(&cause), "{cause:?}: {findings:?}");
    }
}

#[test]
fn each_side_of_a_path_is_named() {
    for (reason, name, side) in [
        ("rdma: this host: there is no RDMA device", "offer", "this host"),
        ("rdma: the server: there is no RDMA device", "bootstrap", "server"),
        (
            "cannot connect to rdma://h:1: rdma is required but not possible: this host: x",
            "offer",
            "this host",
        ),
        ("rdma: the path could not be proven: x", "proof", "network"),
        ("rdma: not offered at the address where it listens", "bootstrap", "server"),
    ] {
        let finding = path::peer_fault(reason, "h");
        assert_eq!((finding.name, finding.side), (name, Some(side)), "{reason}");
        assert!(finding.is_fault() && !finding.fixes.is_empty(), "{finding:?}");
    }
}
