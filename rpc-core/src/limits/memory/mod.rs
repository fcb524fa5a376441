//! The memory that a server keeps because of its clients, and the bound on it.
//!
//! Every connection has limits of its own, and ten thousand of them have ten thousand times as
//! much. So the peers of a server share one budget, by demand (see [`crate::limits::quota`]). A
//! holder is an address, whatever connections it has; a peer without one is a holder for each of
//! its connections. The budget counts what clients decide the size or the time of:
//!
//! - *queued*: answers that wait for memory, and frames that a transport has and the network has
//!   not taken;
//! - *received*: requests of 4 KiB and more until their call's handler has ended, large ones from
//!   their announcement on; large frames of streams until they have arrived; the windows of streams
//!   of requests, as far as they were granted, because their clients may fill them at any time, and
//!   what waits in them beyond that;
//! - handshakes: what each has said so far, and what that is decoded to.
//!
//! What does not fit is refused before it is received or executed, with the limit's name. What
//! exists already is counted although it does not fit: the one message that crosses the line of a
//! stream's window, frames that were encoded. Then others get less, and a new call nothing.
//!
//! A stream is never failed for want of memory by what it is granted. Its window begins with 16 KiB
//! and is widened while half of the budget is free and its holder keeps room for more: established
//! streams go on, slowed by flow control. The windows of a client's connection have a budget of
//! their own, beside which nothing counts.
//!
//! Left out is what handlers keep, shorter requests, what metadata is decoded to, and registered
//! memory of RDMA devices, which has pools with limits of their own.
//!
//! The budget follows from how much memory this process may use: the machine's, or less in a
//! control group. The parsers take the text of the kernel's files.

mod relief;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tonic::Status;

use self::relief::{Want, free_target};
use crate::limits::quota::{Bound, PeerKey};
use crate::limits::shared::{LimitShare, Names, SharedLimit};
use crate::policy::progress::Flows;

pub(crate) use relief::{Holding, MemoryHolder, Pressure, Relief, Usage};

/// Bytes that a holder may take from the reserve: a stream's window by default, so that an open
/// stream can go on.
const FLOOR: u64 = 256 << 10;

/// The part of a small budget that is the most of a floor: a quarter of the reserve.
const FLOOR_PART: u64 = 32;

/// The part of a budget that is the reserve: an eighth, 32 floors of 64 MiB.
const RESERVE_PART: NonZeroU64 = NonZeroU64::new(8).expect("8 is not 0");

/// Divisor of the process's usable memory that gives the default budget. Handlers make as much
/// again of it, and half of the machine is left to the application.
const DEFAULT_PART: u64 = 4;

/// Memory that is assumed if the kernel reports none: a small machine.
const UNKNOWN: u64 = 2 << 30;

/// Mount point of control groups, by file-hierarchy(7) and systemd.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The part of a server's memory budget that one connection shares with the others of its
/// address. A client's connection has none, and may hold what its own limits allow.
#[derive(Debug, Clone, Default)]
pub struct MemoryShare {
    share: Option<Arc<ConnectionShare>>,
}

/// A connection's part of its holder's share.
#[derive(Debug)]
struct ConnectionShare {
    /// The connection's number, which no other of its server has.
    number: u64,
    share: LimitShare<MemoryHolder>,
    /// Bytes that this connection has of what the holder has.
    held: AtomicU64,
    pressure: Arc<Pressure>,
}

/// Bytes that count towards a budget. Dropped, they count no longer.
#[derive(Debug, Default)]
#[must_use]
pub struct MemoryCharge {
    share: Option<Arc<ConnectionShare>>,
    len: u64,
}

impl ConnectionShare {
    fn add(&self, len: u64) {
        self.share.add(len);
        self.held.fetch_add(len, Ordering::Relaxed);
    }

    fn try_add(&self, len: u64) -> Result<(), Status> {
        self.share.try_add(len).inspect_err(|_| self.report(len))?;
        self.held.fetch_add(len, Ordering::Relaxed);
        self.watch();
        Ok(())
    }

    fn remove(&self, len: u64) {
        self.held.fetch_sub(len, Ordering::Relaxed);
        self.share.remove(len);
    }

    /// Makes room if little is free.
    fn watch(&self) {
        let (limit, lendable) = (self.share.limit(), self.share.limit().lendable());
        if limit.total() > lendable - free_target(lendable) {
            self.pressure.raise();
        }
    }

    /// Reports that `amount` was refused.
    fn report(&self, amount: u64) {
        let (holder, held) = (*self.share.holder(), self.share.held());
        let connection_held = self.held.load(Ordering::Relaxed);
        self.pressure.refuse(Want { holder, held, connection_held, amount });
    }
}

impl MemoryShare {
    /// The share of a new connection, which has that number.
    pub(crate) fn new(
        limit: &Arc<SharedLimit<MemoryHolder>>,
        peer: PeerKey,
        number: u64,
        pressure: &Arc<Pressure>,
    ) -> Self {
        let floor = FLOOR.min(limit.max() / FLOOR_PART);
        let share = limit.share(MemoryHolder::new(peer, number), Bound::Dynamic { floor });
        let (held, pressure) = (AtomicU64::new(0), Arc::clone(pressure));
        Self { share: Some(Arc::new(ConnectionShare { number, share, held, pressure })) }
    }

    /// The share of the only holder of a budget: of a client's connection, whose windows count in
    /// it, and of the tests of a transport.
    #[doc(hidden)]
    #[must_use]
    pub fn whole(max: u64) -> Self {
        Self::new(&memory_limit(Some(max)), PeerKey::Local, 0, &Arc::default())
    }

    /// The connection's holding, if it holds anything. `flows` are the connection's.
    pub(crate) fn holding(&self, flows: impl FnOnce() -> Flows) -> Option<Holding> {
        let ConnectionShare { number, share, held, .. } = self.share.as_deref()?;
        let held = held.load(Ordering::Relaxed);
        let (number, holder) = (*number, *share.holder());
        (held > 0).then(|| Holding { number, holder, held, flows: flows() })
    }

    /// Bytes that the connection holds; 0 without a budget.
    pub(crate) fn held(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.held.load(Ordering::Relaxed))
    }

    /// The connection's number, where there is a budget.
    pub(crate) fn number(&self) -> Option<u64> {
        self.share.as_ref().map(|share| share.number)
    }

    /// Looks whether `len` more bytes fit.
    ///
    /// # Errors
    ///
    /// Returns a status if they do not, with the limit and how to raise it.
    #[inline(always)]
    pub fn check(&self, len: u64) -> Result<(), Status> {
        let Some(share) = &self.share else { return Ok(()) };
        let checked = share.share.check(len);
        if checked.is_err() {
            share.report(len);
        }
        checked
    }

    /// Counts `len` bytes, if they fit.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED`: the share or its total is used up. Nothing is counted then.
    pub fn try_take(&self, len: u64) -> Result<MemoryCharge, Status> {
        let mut charge = self.take(0);
        charge.try_set(len)?;
        Ok(charge)
    }

    /// Makes a charge of this share `len` bytes if it grows into what is to spare: half of the
    /// budget stays free for others, and the holder may take `left` more. Where nothing is counted,
    /// it always may.
    pub(crate) fn try_grow(&self, charge: &mut MemoryCharge, len: u64, left: u64) -> bool {
        let Some(share) = &self.share else { return true };
        let (share, more) = (&share.share, len.saturating_sub(charge.len()));
        // Another holder may grow between the check and the charge. Then the two of them leave less
        // than half of the budget free, by one window at most.
        let may_grow = share.has_spare(more) && share.admits(more.saturating_add(left));
        if may_grow {
            charge.set(len);
        }
        may_grow
    }

    /// Counts `len` bytes that exist already, whether they fit or not.
    pub fn take(&self, len: u64) -> MemoryCharge {
        let mut charge = MemoryCharge { share: self.share.clone(), len: 0 };
        charge.set(len);
        charge
    }
}

impl MemoryCharge {
    /// The bytes that count.
    #[must_use]
    pub fn len(&self) -> u64 {
        if self.share.is_some() { self.len } else { 0 }
    }

    /// Returns true if nothing counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it `len` bytes, whether they fit or not.
    pub fn set(&mut self, len: u64) {
        let Some(share) = &self.share else { return };
        match len.checked_sub(self.len) {
            Some(0) => {}
            Some(more) => share.add(more),
            None => share.remove(self.len - len),
        }
        self.len = len;
    }

    /// Makes it `len` bytes, if they fit.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED`: the share or its total is used up. The charge keeps its length then.
    pub fn try_set(&mut self, len: u64) -> Result<(), Status> {
        if let Some(share) = &self.share
            && let Some(more) = len.checked_sub(self.len)
        {
            share.try_add(more)?;
            self.len = len;
            return Ok(());
        }
        self.set(len);
        Ok(())
    }

    /// Returns true if the holder may have more than it has. A refusal is not logged.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.may_grow_by(0)
    }

    /// Returns true if the holder may have `more` bytes than it has. A refusal is not logged.
    pub(crate) fn may_grow_by(&self, more: u64) -> bool {
        self.share.as_ref().is_none_or(|share| share.share.admits(more))
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The budget of a server: `max` bytes, or a quarter of what the process may use.
pub(crate) fn memory_limit(max: Option<u64>) -> Arc<SharedLimit<MemoryHolder>> {
    let names = Names {
        what: "bytes of queued and received messages",
        setting: "server.max_memory",
        holder: "this peer's",
        share_setting: None,
    };
    SharedLimit::with_reserve(names, memory_max(max), RESERVE_PART)
}

/// `max` bytes, or a quarter of what the process may use.
pub(crate) fn memory_max(max: Option<u64>) -> u64 {
    static DEFAULT: OnceLock<u64> = OnceLock::new();
    let default = || *DEFAULT.get_or_init(|| usable() / DEFAULT_PART);
    max.unwrap_or_else(default)
}

/// The bytes of memory that this process may use. A limit that is changed later is not seen.
fn usable() -> u64 {
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

    fn local(limit: &Arc<SharedLimit<MemoryHolder>>, number: u64) -> MemoryShare {
        MemoryShare::new(limit, PeerKey::Local, number, &Arc::default())
    }

    fn held(share: &MemoryShare) -> u64 {
        share.holding(Flows::default).map_or(0, |holding| holding.held)
    }

    #[test]
    fn connections_of_one_address_are_one_holder() {
        let limit = memory_limit(Some(8 << 20));
        let of = |peer, number| MemoryShare::new(&limit, peer, number, &Arc::default());
        let [one, two] = [1, 2].map(|number| of(PeerKey::V4([192, 0, 2, 1]), number));
        let kept = [one.try_take(2 << 20).unwrap(), two.try_take(3 << 19).unwrap()];
        assert!(one.check(1).is_err() && two.check(1).is_err());
        assert_eq!([held(&one), held(&two)], [2 << 20, 3 << 19]);
        assert!(of(PeerKey::V4([192, 0, 2, 2]), 3).check(1 << 20).is_ok());
        let local = of(PeerKey::Local, 4).try_take(1 << 20).unwrap();
        assert!(of(PeerKey::Local, 5).check(1 << 20).is_ok(), "each is a holder");
        drop((kept, local));
        assert_eq!((limit.total(), held(&one)), (0, 0));
    }

    #[test]
    fn the_reserve_serves_those_that_have_little() {
        let limit = memory_limit(Some(64 << 20));
        let of = |number| local(&limit, number);
        let greedy = of(0).take(60 << 20);
        let small: Vec<_> = (1..).map_while(|number| of(number).try_take(FLOOR).ok()).collect();
        assert_eq!(small.len(), 16, "what is left of the reserve");
        drop(greedy);
    }

    #[test]
    fn a_charge_grows_if_it_fits() {
        let limit = memory_limit(Some(8 << 20));
        let share = local(&limit, 1);
        let mut charge = share.try_take(1 << 20).unwrap();
        assert!(charge.try_set(4 << 20).is_err());
        assert_eq!((charge.len(), limit.total()), (1 << 20, 1 << 20));
        charge.try_set(2 << 20).unwrap();
        assert!(charge.may_grow());
        charge.try_set(1 << 10).unwrap();
        assert_eq!((charge.len(), limit.total()), (1 << 10, 1 << 10));
        charge.set(5 << 20);
        assert!(!charge.may_grow());
    }

    #[test]
    fn the_default_is_a_part_of_what_there_is() {
        let max = memory_limit(None).max();
        println!("the default budget here: {} MiB", max >> 20);
        assert!(max >= 16 << 20 && max <= usable() / 2);
    }

    #[test]
    fn a_holder_is_refused_by_name_and_what_exists_is_counted() {
        let limit = memory_limit(Some(8 << 20));
        let [one, other] = [1, 2].map(|number| local(&limit, number));
        let kept = one.try_take(7 << 19).unwrap();
        let refused = one.try_take(1).unwrap_err();
        assert!(refused.message().contains("(server.max_memory)"), "{refused}");
        assert!(other.check(3 << 19).is_ok());
        let mut existing = one.take(1 << 20);
        existing.set(11 << 19);
        assert_eq!(limit.total(), 9 << 20);
        assert!(other.check(0).is_err(), "new calls are refused");
        drop((kept, existing));
        assert_eq!(limit.total(), 0);
    }

    #[test]
    fn a_client_is_not_bounded() {
        let share = MemoryShare::default();
        assert!(share.check(u64::MAX).is_ok());
        assert!(share.try_take(u64::MAX).unwrap().is_empty());
    }

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
