//! Facts about a device and its ports that the kernel shows in sysfs alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys::provider::Partition;

/// Entries of a port's partition table that are read: more than fabrics have.
const PARTITIONS_MAX: usize = 128;

/// Directory of the devices.
const DEVICES: &str = "/sys/class/infiniband";

/// The node of the machine that a device is at. None for a device in software, and on a machine
/// without nodes, which sysfs says by a negative number.
pub(super) fn node_of(device: &str) -> Option<u32> {
    node_under(Path::new(DEVICES), device)
}

fn node_under(root: &Path, device: &str) -> Option<u32> {
    fs::read_to_string(root.join(device).join("device/numa_node")).ok()?.trim().parse().ok()
}

/// A port's directories in sysfs.
pub(super) struct PortFiles {
    device: PathBuf,
    port: u8,
}

impl PortFiles {
    pub(super) fn new(device: &str, port: u8) -> Self {
        Self::under(Path::new(DEVICES), device, port)
    }

    fn under(root: &Path, device: &str, port: u8) -> Self {
        Self { device: root.join(device), port }
    }

    /// The traffic class that the driver gives all packets of the port, if it is set to one
    /// (mlx5, `Global tclass=106`).
    pub(super) fn traffic_class(&self) -> Option<u8> {
        let file = self.device.join(format!("tc/{}/traffic_class", self.port));
        let text = fs::read_to_string(file).ok()?;
        let class = text.lines().find_map(|line| line.trim().strip_prefix("Global tclass="))?;
        class.trim().parse().ok()
    }

    /// The partition of the port's queue pairs.
    pub(super) fn partition(&self) -> Partition {
        Partition::choose(&self.partition_keys())
    }

    /// The keys of the port's table of partitions.
    pub(super) fn partition_keys(&self) -> Vec<u16> {
        let folder = self.device.join(format!("ports/{}/pkeys", self.port));
        let key = |index: usize| {
            let text = fs::read_to_string(folder.join(index.to_string())).ok()?;
            u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
        };
        (0..PARTITIONS_MAX).map_while(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn what_sysfs_says_of_a_port_is_read() {
        let root = std::env::temp_dir().join(format!("farcall-sysfs-{}", std::process::id()));
        let files = PortFiles::under(&root, "mlx5_0", 2);
        assert_eq!((files.traffic_class(), files.partition()), (None, Partition::DEFAULT));
        assert_eq!(node_under(&root, "mlx5_0"), None);
        for (file, text) in [
            ("device/numa_node", "1\n"),
            ("tc/2/traffic_class", "Global tclass=98\n"),
            ("ports/2/pkeys/0", "0x7fff\n"),
            ("ports/2/pkeys/1", "0x8005\n"),
        ] {
            let file = root.join("mlx5_0").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let partition = Partition { index: 1, key: 0x8005 };
        assert_eq!((files.traffic_class(), files.partition()), (Some(98), partition));
        assert_eq!(node_under(&root, "mlx5_0"), Some(1));
        fs::write(root.join("mlx5_0/device/numa_node"), "-1\n").unwrap();
        assert_eq!(node_under(&root, "mlx5_0"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
