//! Memory that the process has locked for devices, and may lock.

#[cfg(feature = "ibverbs")]
use std::fs;

#[cfg(feature = "ibverbs")]
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Memory that is locked for devices, and the limit on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockedMemory {
    /// Bytes that are locked.
    pub locked: u64,
    /// The most that can be; `None` when there is no limit.
    pub limit: Option<u64>,
}

impl LockedMemory {
    /// Bytes that can be locked in addition; `None` when there is no limit.
    pub(crate) fn free(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.locked))
    }
}

#[cfg(feature = "ibverbs")]
impl LockedMemory {
    /// Reads this process's `RLIMIT_MEMLOCK`, and the bytes that the kernel counts as pinned.
    pub(crate) fn current() -> Self {
        Self::by(&fs::read_to_string(STATUS).unwrap_or_default())
    }

    /// Memory of this process, for planning: a process with `CAP_IPC_LOCK` has no
    /// limit, unless the capability is that of a user namespace.
    pub(crate) fn to_size_by() -> Self {
        let status = fs::read_to_string(STATUS).unwrap_or_default();
        let users = fs::read_to_string(USERS).unwrap_or_default();
        let is_exempt = has_ipc_lock(&status) && is_of_host(&users);
        let memory = Self::by(&status);
        Self { limit: memory.limit.filter(|_| !is_exempt), ..memory }
    }

    fn by(status: &str) -> Self {
        let limits = getrlimit(Resource::RLIMIT_MEMLOCK).ok();
        let limit = limits.map(|(soft, _hard)| soft).filter(|soft| *soft != RLIM_INFINITY);
        Self { locked: pinned(status), limit }
    }
}

/// State of the process, and the users of its namespace.
#[cfg(feature = "ibverbs")]
const STATUS: &str = "/proc/self/status";
#[cfg(feature = "ibverbs")]
const USERS: &str = "/proc/self/uid_map";

/// Returns true if the users of a namespace, as user_namespaces(7) lists them, are all there are.
#[cfg(feature = "ibverbs")]
fn is_of_host(users: &str) -> bool {
    users.split_whitespace().eq(["0", "0", "4294967295"])
}

/// `CAP_IPC_LOCK` of capabilities(7).
#[cfg(feature = "ibverbs")]
const IPC_LOCK: u64 = 1 << 14;

/// The rest of the line of proc_pid_status(5) that begins with a name.
#[cfg(feature = "ibverbs")]
fn value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Bytes that are pinned, which devices count against the limit.
#[cfg(feature = "ibverbs")]
fn pinned(status: &str) -> u64 {
    let kib = value(status, "VmPin:").and_then(|text| text.strip_suffix("kB"));
    kib.and_then(|text| text.trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

#[cfg(feature = "ibverbs")]
fn has_ipc_lock(status: &str) -> bool {
    let effective = value(status, "CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok());
    effective.is_some_and(|effective| effective & IPC_LOCK != 0)
}

#[cfg(all(test, feature = "ibverbs"))]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmLck:\t       4 kB\nVmPin:\t    8192 kB\n\
                          CapEff:\t0000000000004000\n";

    #[test]
    fn what_is_pinned_counts_and_the_capability_lifts_the_limit() {
        assert_eq!(pinned(STATUS), 8 << 20);
        assert!(has_ipc_lock(STATUS));
        assert!(!has_ipc_lock("CapEff:\t000000000000bfff\n"));
        assert_eq!((pinned(""), has_ipc_lock("")), (0, false));
        assert!(is_of_host("         0          0 4294967295\n"));
        assert!(!is_of_host("         0     100000      65536\n") && !is_of_host(""));
    }

    #[test]
    fn what_is_left_of_a_limit_is_never_negative() {
        let memory = |locked, limit| LockedMemory { locked, limit };
        assert_eq!(memory(3, Some(5)).free(), Some(2));
        assert_eq!(memory(7, Some(5)).free(), Some(0));
        assert_eq!(memory(7, None).free(), None);
    }
}
