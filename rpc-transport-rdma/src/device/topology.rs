//! The distance of devices from the processors that this process may run on.
//!
//! Linux has the node of a device and the distances between nodes in sysfs. A device whose node is
//! not known, like one in software, is as far as any.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine's nodes as sysfs has them, and the processors of this process.
#[derive(Debug, Clone)]
pub struct Topology {
    sysfs: PathBuf,
    processors: Vec<u32>,
}

impl Topology {
    /// This machine, and the processors that the system lets this process use now.
    #[must_use]
    pub fn current() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self::new(Path::new("/sys"), number_list(allowed.unwrap_or_default()))
    }

    /// A machine whose sysfs is at `sysfs`, and these processors of it.
    #[must_use]
    pub fn new(sysfs: &Path, processors: Vec<u32>) -> Self {
        Self { sysfs: sysfs.to_owned(), processors }
    }

    /// The distance between a device and the nearest processor, as the firmware has it: 10 is the
    /// same node, and 20 means twice as long. `None` when the system does not know.
    #[must_use]
    pub fn distance(&self, device: &str) -> Option<u32> {
        let node = self.node(device)?;
        let nodes = self.nodes();
        let distances = fs::read_to_string(self.node_file(node, "distance")).ok()?;
        // One for each node that there is, in the order of their numbers.
        let distances = distances.split_whitespace().map(str::parse::<u32>);
        let pairs = nodes.into_iter().zip(distances);
        let ours = pairs.filter(|(node, _)| self.ours(*node) > 0);
        ours.filter_map(|(_, distance)| distance.ok()).min()
    }

    /// Returns the number of processors of this process on the device's node, and of all of them if
    /// the system does not know the node.
    #[must_use]
    pub fn processors_near(&self, device: &str) -> usize {
        self.node(device).map_or(self.processors.len(), |node| self.ours(node))
    }

    fn node(&self, device: &str) -> Option<u32> {
        let file = self.sysfs.join("class/infiniband").join(device).join("device/numa_node");
        // A negative number says that the node is not known.
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// The numbers of the nodes, ascending.
    fn nodes(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.sysfs.join("devices/system/node"));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
        let mut nodes: Vec<u32> = names.filter_map(number).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The number of processors of this process on a node.
    fn ours(&self, node: u32) -> usize {
        let list = fs::read_to_string(self.node_file(node, "cpulist")).unwrap_or_default();
        let here = number_list(&list);
        self.processors.iter().filter(|processor| here.contains(processor)).count()
    }

    fn node_file(&self, node: u32, file: &str) -> PathBuf {
        self.sysfs.join(format!("devices/system/node/node{node}")).join(file)
    }
}

/// More processors than any machine has: a list is text of the system, and a range in it may say
/// anything.
const PROCESSORS_MAX: usize = 1 << 16;

/// The numbers of a list like `0-3,8`, as far as it makes sense.
fn number_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().take(PROCESSORS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of four processors each, with a device at each and one in software.
    fn two_sockets(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("topology-{name}-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        for (node, cpus, distances) in [(0, "0-3\n", "10 21\n"), (1, "4-7\n", "21 10\n")] {
            write(&format!("devices/system/node/node{node}/cpulist"), cpus);
            write(&format!("devices/system/node/node{node}/distance"), distances);
        }
        write("devices/system/node/possible", "0-1\n");
        for (device, node) in [("mlx5_0", "0\n"), ("mlx5_1", "1\n"), ("rxe0", "-1\n")] {
            write(&format!("class/infiniband/{device}/device/numa_node"), node);
        }
        root
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn the_distance_is_that_to_the_nearest_processor_of_the_process() {
        let root = two_sockets("distance");
        let distances = |processors: &[u32]| {
            let topology = Topology::new(&root, processors.to_vec());
            ["mlx5_0", "mlx5_1", "rxe0", "gone"].map(|device| topology.distance(device))
        };
        assert_eq!(distances(&[1]), [Some(10), Some(21), None, None]);
        assert_eq!(distances(&[5, 6]), [Some(21), Some(10), None, None]);
        assert_eq!(distances(&[3, 4]), [Some(10), Some(10), None, None]);
        assert_eq!(distances(&[]), [None; 4]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn near_processors_are_the_process_own_on_the_node() {
        let root = two_sockets("processors");
        let near = |processors: &[u32]| {
            let topology = Topology::new(&root, processors.to_vec());
            ["mlx5_0", "mlx5_1", "rxe0", "gone"].map(|device| topology.processors_near(device))
        };
        assert_eq!(near(&[0, 1, 2, 6]), [3, 1, 4, 4]);
        assert_eq!(near(&[5]), [0, 1, 1, 1]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn lists_of_numbers_are_read_as_far_as_they_make_sense() {
        assert_eq!(number_list(" 0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(number_list("x,3-,5"), [5]);
        assert!(number_list("").is_empty());
        assert_eq!(number_list("0-4294967295").len(), PROCESSORS_MAX);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn this_process_may_run_somewhere() {
        assert!(!Topology::current().processors.is_empty());
    }
}
