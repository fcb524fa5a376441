//! Facts of hosts that are built in a temporary folder, sound and hostile ones.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::facts::{Container, Facts, Node};
use super::files::Root;
use super::gather::gather;

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host with one Soft-RoCE device.
fn host() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let port = "sys/class/infiniband/rxe0/ports/1";
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.1.0-50-amd64\n"),
        ("sys/module/ib_core/parameters/netns_mode", "N\n"),
        ("sys/class/infiniband/rxe0/parent", "v0\n"),
        ("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n"),
        ("sys/class/infiniband_verbs/abi_version", "6\n"),
        ("dev/infiniband/uverbs0", ""),
        ("usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", ""),
        ("sys/class/net/v0/mtu", "4500\n"),
        (
            "proc/self/limits",
            "Limit   Soft  Hard  Units\nMax open files  1024  4096  files\n\
                              Max locked memory         8388608    unlimited  bytes\n",
        ),
        (
            "proc/self/status",
            "Name:\tx\nUid:\t0\t1000\t0\t0\nCapEff:\t0000000000000000\n\
                              CapBnd:\t0000000000004000\nCpus_allowed_list:\t0-1\n",
        ),
        ("proc/meminfo", "MemTotal: 1 kB\nHugePages_Free:        3\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
        ("run/.containerenv", ""),
    ] {
        write(folder.path(), path, text);
    }
    for (path, text) in [
        ("state", "4: ACTIVE\n"),
        ("phys_state", "5: LinkUp\n"),
        ("link_layer", "Ethernet\n"),
        ("rate", "2.5 Gb/sec (1X SDR)\n"),
        ("hw_counters/retry_exceeded_err", "2\n"),
        ("hw_counters/out_of_sequence", "0\n"),
        ("gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n"),
        ("gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("gid_attrs/types/1", "RoCE v2\n"),
        ("gid_attrs/ndevs/1", "v0\n"),
    ] {
        write(folder.path(), &format!("{port}/{path}"), text);
    }
    folder
}

fn facts(folder: &tempfile::TempDir) -> Facts {
    gather(&Root::new(folder.path()))
}

#[test]
fn files_of_a_host_become_facts() {
    let facts = facts(&host());
    assert_eq!(facts.kernel, "6.1.0-50-amd64");
    assert_eq!((facts.is_netns_exclusive, facts.provider_count), (Some(true), 1));
    assert_eq!(facts.container, Some(Container::Podman));
    let device = &facts.devices[0];
    assert_eq!((device.name.as_str(), device.driver.as_deref()), ("rxe0", Some("rxe")));
    assert_eq!(device.interfaces, ["v0"]);
    assert_eq!(device.node, Node::Usable("uverbs0".into()));
    let port = &device.ports[0];
    assert_eq!((port.state.as_str(), port.gigabits), ("ACTIVE", Some(2.5)));
    let gids: Vec<_> = port.gids.iter().map(|it| (it.index, it.address.to_string())).collect();
    assert_eq!(gids, [(0, "fe80::ff:fe00:1".to_owned()), (1, "10.0.0.1".to_owned())]);
    assert!(port.gids[1].is_roce_v2() && !port.gids[0].is_roce_v2());
    assert_eq!((port.losses.len(), port.losses[0].count), (1, 2));
    let process = &facts.process;
    assert_eq!(
        (process.user, process.memlock, process.open_files),
        (1000, Some(8 << 20), Some(1024))
    );
    assert!(!process.has_ipc_lock && process.may_have_ipc_lock);
    let machine = &facts.machine;
    assert_eq!(machine.transparent_huge_pages.as_deref(), Some("madvise"));
    assert_eq!((machine.free_huge_pages, machine.tcp_send_max), (3, Some(4_194_304)));
}

#[test]
fn device_nodes_are_told_apart() {
    let folder = host();
    let node = folder.path().join("dev/infiniband/uverbs0");
    fs::remove_file(&node).unwrap();
    assert_eq!(facts(&folder).devices[0].node, Node::Missing("uverbs0".into()));
    fs::create_dir(&node).unwrap();
    let denied = facts(&folder).devices[0].node.clone();
    assert!(matches!(denied, Node::Denied { .. }), "{denied:?}");
    fs::remove_dir_all(folder.path().join("sys/class/infiniband_verbs")).unwrap();
    assert_eq!(facts(&folder).devices[0].node, Node::NoModule);
}

#[test]
fn odd_files_neither_block_nor_print_nor_grow() {
    let folder = host();
    let root = folder.path();
    let port = "sys/class/infiniband/rxe0/ports/1";
    write(root, &format!("{port}/state"), b"4: \x1b[2JACTIVE\xff\xfe\0".repeat(1 << 16));
    write(root, &format!("{port}/rate"), "1e999999 Gb/sec");
    write(root, &format!("{port}/gids/1"), "not a gid \u{202e}");
    write(root, &format!("{port}/hw_counters/out_of_sequence"), "9".repeat(1 << 16));
    write(root, "proc/self/status", "Uid:\nCapEff:\tzz\nCpus_allowed_list:\t0-4294967295,,x-,-\n");
    write(root, "proc/self/limits", "Max locked memory\nMax open files x\n");
    write(root, "sys/devices/system/node/node0/cpulist", "\n");
    for index in 0..100 {
        write(root, &format!("sys/class/infiniband/dev{index}/parent"), "\x07\x1b]0;title\x07");
    }
    let odd = root.join("sys/class/infiniband").join(std::ffi::OsStr::from_bytes(b"\x1b[31m\xff"));
    fs::create_dir(odd).unwrap();
    fs::remove_file(root.join("sys/class/infiniband/rxe0/parent")).unwrap();
    fs::create_dir(root.join("sys/class/infiniband/rxe0/parent")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("sys/class/infiniband/loop")).unwrap();
    let pipe = root.join("proc/meminfo");
    fs::remove_file(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let facts = facts(&folder);
    assert_eq!(facts.devices.len(), 64);
    let lines = super::host(&facts).iter().flat_map(super::Finding::lines).collect::<Vec<_>>();
    let clean = |line: &String| !line.contains(|it: char| it.is_control()) && line.len() < 4_096;
    assert!(lines.iter().all(clean), "{lines:?}");
    assert!(lines.len() < 1_000, "{}", lines.len());
    assert!(serde_json::to_string(&facts).unwrap().len() < 1 << 17);
}
