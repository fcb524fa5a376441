//! Counters of RDMA devices.

use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's folder of RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// The sum of a hardware counter over all ports of all devices; none when no port has it. A device
/// that is being removed has none.
#[must_use]
pub fn device_counter(name: &str) -> Option<u64> {
    sum(Path::new(DEVICES), name)
}

fn sum(devices: &Path, name: &str) -> Option<u64> {
    let ports = entries(devices).into_iter().flat_map(|device| entries(&device.join("ports")));
    let count = |port: PathBuf| -> Option<u64> {
        fs::read_to_string(port.join("hw_counters").join(name)).ok()?.trim().parse().ok()
    };
    ports.filter_map(count).reduce(|sum, count| sum + count)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_of_all_devices_count() {
        let root = std::env::temp_dir().join(format!("farcall-counters-{}", std::process::id()));
        for (port, count) in [("a/ports/1", "3\n"), ("a/ports/2", "4\n"), ("b/ports/1", "5\n")] {
            let folder = root.join(port).join("hw_counters");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("sends"), count).unwrap();
        }
        assert_eq!(sum(&root, "sends"), Some(12));
        assert_eq!(sum(&root, "recvs"), None);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(sum(&root, "sends"), None);
    }
}
