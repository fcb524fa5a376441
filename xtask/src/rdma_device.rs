//! Looking for an RDMA device of this host that tests and the demo can use.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// A device with an active port that has a RoCE v2 address for IPv4, which is what farcall's
/// upgrade looks for.
#[derive(Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Its name, as `ibv_devices` shows it.
    pub name: String,
    /// The active port.
    pub port: String,
    /// The address of that port.
    pub address: Ipv4Addr,
}

/// A usable device of this host, if there is one.
pub(crate) fn find() -> Option<RdmaDevice> {
    find_in(Path::new("/sys/class/infiniband"), Path::new("/dev/infiniband"))
}

/// `devices` holds what the kernel says of devices, `nodes` the files through which programs use
/// them: a container may see the first without having the second.
fn find_in(devices: &Path, nodes: &Path) -> Option<RdmaDevice> {
    let has_nodes = entries(nodes).iter().any(|node| name(node).starts_with("uverbs"));
    if !has_nodes {
        return None;
    }
    entries(devices).iter().find_map(|device| {
        entries(&device.join("ports")).iter().find_map(|port| {
            let state = fs::read_to_string(port.join("state")).ok()?;
            if !state.trim().ends_with(": ACTIVE") {
                return None;
            }
            let address = roce_v2_address(port)?;
            Some(RdmaDevice { name: name(device), port: name(port), address })
        })
    })
}

fn roce_v2_address(port: &Path) -> Option<Ipv4Addr> {
    entries(&port.join("gids")).iter().find_map(|gid| {
        // Reading an entry that is not in use fails.
        let kind = fs::read_to_string(port.join("gid_attrs/types").join(gid.file_name()?)).ok()?;
        let address: Ipv6Addr = fs::read_to_string(gid).ok()?.trim().parse().ok()?;
        address.to_ipv4_mapped().filter(|_| kind.trim() == "RoCE v2")
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the kernel's files of one device with one port.
    fn device(root: &Path, name: &str, state: &str, gids: &[(&str, &str)]) {
        let port = root.join("sys").join(name).join("ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        fs::write(port.join("state"), state).unwrap();
        for (index, (gid, kind)) in gids.iter().enumerate() {
            fs::write(port.join("gids").join(index.to_string()), gid).unwrap();
            fs::write(port.join("gid_attrs/types").join(index.to_string()), kind).unwrap();
        }
    }

    const ADDRESS: &str = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";

    fn find_below(root: &Path) -> Option<RdmaDevice> {
        find_in(&root.join("sys"), &root.join("dev"))
    }

    #[test]
    fn an_active_port_with_a_roce_v2_address_is_found() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "down0", "1: DOWN\n", &[(ADDRESS, "RoCE v2\n")]);
        device(root.path(), "old0", "4: ACTIVE\n", &[(ADDRESS, "IB/RoCE v1\n")]);
        let link_local = ("fe80:0000:0000:0000:0000:00ff:fe00:0001\n", "RoCE v2\n");
        device(root.path(), "rxe0", "4: ACTIVE\n", &[link_local, (ADDRESS, "RoCE v2\n")]);
        fs::create_dir(root.path().join("dev")).unwrap();
        assert_eq!(find_below(root.path()), None);

        fs::write(root.path().join("dev/uverbs0"), "").unwrap();
        let found = find_below(root.path()).unwrap();
        assert_eq!((found.name.as_str(), found.port.as_str()), ("rxe0", "1"));
        assert_eq!(found.address, Ipv4Addr::new(10, 0, 0, 1));
    }

    #[test]
    fn a_host_without_rdma_has_none() {
        assert_eq!(find_below(tempfile::tempdir().unwrap().path()), None);
    }
}
