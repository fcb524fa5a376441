//! How much memory this process may use: the machine's, or less in a control group.
//!
//! The parsers take the text of the kernel's files; [`usable`] reads them.

use std::path::{Path, PathBuf};

/// What is supposed where the kernel does not tell: a small machine.
const UNKNOWN: u64 = 2 << 30;

/// Where control groups are mounted, by file-hierarchy(7) and systemd.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The bytes of memory that this process may use. A limit that is changed later is not seen.
pub(super) fn usable() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    usable_by(&read)
}

/// The same, from files as `read` gives them.
fn usable_by(read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| parse_meminfo(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let files = limit_files(&groups);
    let limits = files.iter().filter_map(|file| parse_limit(&read(file)?));
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

/// The files with the limits of a process, from its `/proc/self/cgroup`: one for each control
/// group from its own up to the root, since each of them limits what is below it.
///
/// Inside a container the root of the hierarchy is the container's own group, whatever the path
/// says. Its limit is found because the walk ends there.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    groups.lines().flat_map(limit_files_of).collect()
}

/// The files of one line, which is `number:controllers:path` by cgroups(7): version 2 has no
/// controllers, version 1 names them.
fn limit_files_of(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = if controllers.is_empty() {
        (PathBuf::from(CGROUP_ROOT), "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (Path::new(CGROUP_ROOT).join("memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    // A path with `..` leads out of what the process sees of the hierarchy.
    let group = Path::new(group.trim_start_matches('/'));
    let is_plain = group.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let group = if is_plain { group } else { Path::new("") };
    group.ancestors().map(|group| root.join(group).join(file)).collect()
}

/// A limit in bytes; `None` when there is none, which version 2 writes as `max`. Version 1 writes
/// a number beyond any machine's memory, which loses against the machine's own.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The machine's memory in bytes: `MemTotal` by proc_meminfo(5), in KiB.
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMINFO: &str = "MemTotal:       24576000 kB\nMemFree:        1234 kB\n";

    fn with(files: &[(&str, &str)]) -> u64 {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        usable_by(&read)
    }

    #[test]
    fn the_machines_memory_counts_where_no_group_has_a_limit() {
        let groups = "0::/system.slice/kv.service\n";
        let unlimited = "/sys/fs/cgroup/system.slice/kv.service/memory.max";
        let meminfo = ("/proc/meminfo", MEMINFO);
        let files = [meminfo, ("/proc/self/cgroup", groups), (unlimited, "max\n")];
        assert_eq!(with(&files), 24_576_000 << 10);
        assert_eq!(with(&[meminfo]), 24_576_000 << 10);
        assert_eq!(with(&[]), UNKNOWN);
    }

    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/system.slice/kv.service\n"),
            ("/sys/fs/cgroup/system.slice/kv.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
        ];
        assert_eq!(with(&files), 1 << 30);
    }

    #[test]
    fn a_container_sees_its_limit_at_the_root() {
        let meminfo = ("/proc/meminfo", MEMINFO);
        for (groups, file) in [
            ("0::/\n", "/sys/fs/cgroup/memory.max"),
            ("0::/../../kubepods/pod7\n", "/sys/fs/cgroup/memory.max"),
            ("0::/kubepods/pod7\n", "/sys/fs/cgroup/memory.max"),
            (
                "9:cpu:/docker/7\n8:memory:/docker/7\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ),
        ] {
            let files = [meminfo, ("/proc/self/cgroup", groups), (file, "536870912\n")];
            assert_eq!(with(&files), 512 << 20, "{groups}");
        }
    }

    #[test]
    fn version_1_has_a_limit_beyond_all_memory_for_none() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "8:cpuset,memory:/docker/7\n"),
            ("/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(with(&files), 24_576_000 << 10);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in ".*", more in "\\PC*") {
            let _ = (parse_meminfo(&text), parse_limit(&text), limit_files(&text));
            let _ = (parse_meminfo(&format!("MemTotal: {more} kB")), limit_files(&more));
        }
    }
}
