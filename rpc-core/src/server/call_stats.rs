//! Counts of a server's calls by method, the calls that failed last, and watchers that see calls as
//! they end, for operators.
//!
//! Only a server with a service for operators counts. All memory is taken when the server is built,
//! but for the texts of the calls that failed, which are bounded. Without a watcher, a call costs
//! a look at one flag when it begins, and one when it ends.

use std::array::from_fn;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use tonic::Code;

use crate::calls::id_hashing::IdHashing;
use crate::{CallKind, MethodDescriptor};

/// Number of failed calls that are kept.
pub const FAILED_CALLS_MAX: usize = 64;

/// Most watchers of a server's calls at a time.
pub const WATCHERS_MAX: usize = 4;

/// Number of status codes.
const CODE_COUNT: usize = 17;

/// Buckets of a histogram: four for each power of two, up to 2^27 us, which are over two minutes.
const BUCKET_COUNT: usize = 104;

/// Calls of one method that have ended.
#[derive(Debug, Clone)]
pub struct MethodCalls {
    /// Path of the method; `None` for calls of methods that the server does not have.
    pub method: Option<&'static MethodDescriptor>,
    /// Number of calls by code, in gRPC's order: `OK` is the first.
    pub codes: [u64; CODE_COUNT],
    /// Number of calls by time; [`latency_bound`] has the upper bound of each.
    pub latency: Vec<u64>,
}

/// A call that has failed.
#[derive(Debug, Clone)]
pub struct FailedCallInfo {
    /// End of the call.
    pub at: SystemTime,
    /// Path of the method; `unknown` for one that the server does not have.
    pub method: &'static str,
    /// The client's address.
    pub peer: String,
    /// Transport of the connection.
    pub transport: &'static str,
    /// Code of the status.
    pub code: Code,
    /// Message of the status, escaped and cut as a [`PeerText`](crate::wire::PeerText).
    pub message: String,
    /// Time from the arrival of the request.
    pub took: Duration,
}

/// A call that has ended, as a watcher is given it.
#[derive(Debug, Clone)]
pub struct EndedCallInfo {
    /// End of the call.
    pub at: SystemTime,
    /// Path of the method; `unknown` for one that the server does not have.
    pub method: &'static str,
    /// The client's address.
    pub peer: String,
    /// Transport of the connection.
    pub transport: &'static str,
    /// Code of the status.
    pub code: Code,
    /// Time from the arrival of the request.
    pub took: Duration,
    /// Number of requests, and their bytes. Those of a stream are counted modulo 2^32.
    pub requests: (u32, u64),
    /// Number of responses, and their bytes.
    pub responses: (u32, u64),
    /// Keys of the request's metadata, 32 at most; none of a call that began unwatched.
    pub keys: Vec<String>,
}

/// An operator that sees calls of a server as they end.
///
/// Connections' own tasks call it, so that it must not block.
pub trait CallWatcher: fmt::Debug + Send + Sync {
    /// Returns true to be given the call. Called once for each call that has ended.
    fn wants(&self, method: &'static str, code: Code) -> bool;

    /// Takes a call that it wants.
    fn take(&self, call: EndedCallInfo);
}

/// A watcher's place among those of a server, which it leaves when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct CallWatch {
    stats: Arc<CallStats>,
    watcher: Arc<dyn CallWatcher>,
}

impl CallWatch {
    /// Adds a watcher. `None` if there are as many as may be.
    pub(super) fn begin(stats: &Arc<CallStats>, watcher: Arc<dyn CallWatcher>) -> Option<Self> {
        let is_added = stats.add_watcher(&watcher);
        is_added.then(|| Self { stats: Arc::clone(stats), watcher })
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.stats.remove_watcher(&self.watcher);
    }
}

/// Returns the bound that the times of a bucket are below, in microseconds.
#[must_use]
pub fn latency_bound(bucket: usize) -> u64 {
    let next = bucket + 1;
    if next < 4 { next as u64 } else { (4 + next as u64 % 4) << (next / 4 - 1) }
}

/// Returns the bucket of a time in microseconds.
fn bucket(micros: u64) -> usize {
    if micros < 4 {
        return usize::try_from(micros).unwrap_or_default();
    }
    let exponent = 63 - micros.leading_zeros() as usize;
    let quarter = usize::try_from(micros >> (exponent - 2) & 3).unwrap_or_default();
    ((exponent - 1) * 4 + quarter).min(BUCKET_COUNT - 1)
}

/// The counts of a server's calls.
#[derive(Debug)]
pub(crate) struct CallStats {
    /// By the address of the method's descriptor.
    methods: HashMap<usize, MethodStats, IdHashing>,
    unknown: MethodStats,
    failed: Mutex<VecDeque<FailedCallInfo>>,
    watchers: RwLock<Vec<Arc<dyn CallWatcher>>>,
    /// True while there are watchers, so that calls need not take their lock to find none.
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct MethodStats {
    method: Option<&'static MethodDescriptor>,
    codes: [AtomicU64; CODE_COUNT],
    latency: Box<[AtomicU64]>,
}

impl MethodStats {
    fn new(method: Option<&'static MethodDescriptor>) -> Self {
        let latency = (0..BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self { method, codes: from_fn(|_| AtomicU64::new(0)), latency }
    }

    fn read(&self) -> MethodCalls {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MethodCalls {
            method: self.method,
            codes: from_fn(|code| value(&self.codes[code])),
            latency: self.latency.iter().map(value).collect(),
        }
    }
}

impl CallStats {
    pub(crate) fn new(methods: impl Iterator<Item = &'static MethodDescriptor>) -> Self {
        let entry = |method: &'static MethodDescriptor| {
            (ptr::from_ref(method).addr(), MethodStats::new(Some(method)))
        };
        Self {
            methods: methods.map(entry).collect(),
            unknown: MethodStats::new(None),
            failed: Mutex::new(VecDeque::with_capacity(FAILED_CALLS_MAX)),
            watchers: RwLock::default(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Returns true if a call that begins or ends now has a watcher.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Gives a call that has ended to the watchers that want it.
    pub(crate) fn show(&self, method: &'static str, code: Code, call: impl Fn() -> EndedCallInfo) {
        let watchers = self.watchers.read();
        for watcher in watchers.iter().filter(|watcher| watcher.wants(method, code)) {
            watcher.take(call());
        }
    }

    /// Returns false if there are as many watchers as may be.
    fn add_watcher(&self, watcher: &Arc<dyn CallWatcher>) -> bool {
        let mut watchers = self.watchers.write();
        let has_room = watchers.len() < WATCHERS_MAX;
        if has_room {
            watchers.push(Arc::clone(watcher));
            self.is_watched.store(true, Ordering::Relaxed);
        }
        has_room
    }

    fn remove_watcher(&self, watcher: &Arc<dyn CallWatcher>) {
        let mut watchers = self.watchers.write();
        // One place of it: a program may have added it twice.
        let place = watchers.iter().position(|other| Arc::ptr_eq(other, watcher));
        let _removed = place.map(|place| watchers.swap_remove(place));
        self.is_watched.store(!watchers.is_empty(), Ordering::Relaxed);
    }

    /// Counts a call that has ended.
    pub(crate) fn count(
        &self,
        method: Option<&'static MethodDescriptor>,
        code: Code,
        took: Duration,
    ) {
        let known = method.and_then(|method| self.methods.get(&ptr::from_ref(method).addr()));
        let stats = known.unwrap_or(&self.unknown);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // Relaxed: the counts stand alone, and a reader may see one a moment before the other.
        stats.codes[(code as usize).min(CODE_COUNT - 1)].fetch_add(1, Ordering::Relaxed);
        stats.latency[bucket(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a call that has failed in the place of the oldest.
    pub(crate) fn keep_failed(&self, call: FailedCallInfo) {
        let mut failed = self.failed.lock();
        let is_full = failed.len() >= FAILED_CALLS_MAX;
        let oldest = if is_full { failed.pop_front() } else { None };
        failed.push_back(call);
        // Its texts are freed with the lock released: all connections share it.
        drop(failed);
        drop(oldest);
    }

    /// Returns the counts of all methods, in the order of their paths. Methods without a descriptor
    /// are the last.
    pub(crate) fn methods(&self) -> Vec<MethodCalls> {
        let mut methods: Vec<_> = self.methods.values().map(MethodStats::read).collect();
        methods.sort_by_key(|calls| calls.method.map_or("", |method| method.path));
        methods.push(self.unknown.read());
        methods
    }

    /// Returns the calls that failed last, the newest first.
    pub(crate) fn failed(&self) -> Vec<FailedCallInfo> {
        let failed = self.failed.lock();
        failed.iter().rev().cloned().collect()
    }
}

impl MethodCalls {
    /// Returns the number of calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.codes.iter().sum()
    }

    /// Returns true if each call of the method has one request and one response.
    #[must_use]
    pub fn is_unary(&self) -> bool {
        self.method.is_some_and(|method| method.kind == CallKind::Unary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Idempotency;

    static METHODS: [MethodDescriptor; 2] = [method("/t.T/A"), method("/t.T/B")];

    const fn method(path: &'static str) -> MethodDescriptor {
        MethodDescriptor::new(path, CallKind::Unary, Idempotency::Unknown)
    }

    fn failed(message: &str) -> FailedCallInfo {
        FailedCallInfo {
            at: SystemTime::UNIX_EPOCH,
            method: "/t.T/A",
            peer: "127.0.0.1:1".to_owned(),
            transport: "tcp",
            code: Code::Internal,
            message: message.to_owned(),
            took: Duration::ZERO,
        }
    }

    proptest! {
        #[test]
        fn bucket_bounds_enclose_its_times(micros in any::<u64>(), shift in 0_u32..64) {
            let micros = micros >> shift;
            let bucket = bucket(micros);
            prop_assert!(bucket == BUCKET_COUNT - 1 || micros < latency_bound(bucket));
            prop_assert!(bucket == 0 || micros >= latency_bound(bucket - 1));
        }
    }

    #[test]
    fn calls_count_by_method_and_code() {
        let stats = CallStats::new(METHODS.iter());
        stats.count(Some(&METHODS[1]), Code::Ok, Duration::from_micros(9));
        stats.count(Some(&METHODS[1]), Code::Unauthenticated, Duration::from_micros(9));
        stats.count(None, Code::Unimplemented, Duration::MAX);
        let [a, b, unknown] = &stats.methods()[..] else { panic!("three methods") };
        assert_eq!((a.total(), b.total(), unknown.total()), (0, 2, 1));
        assert_eq!((b.codes[0], b.codes[16], b.latency[bucket(9)]), (1, 1, 2));
    }

    /// Takes the calls that fail.
    #[derive(Debug, Default)]
    struct Failures(Mutex<Vec<EndedCallInfo>>);

    impl CallWatcher for Failures {
        fn wants(&self, _: &'static str, code: Code) -> bool {
            code != Code::Ok
        }

        fn take(&self, call: EndedCallInfo) {
            self.0.lock().push(call);
        }
    }

    fn ended(code: Code) -> EndedCallInfo {
        EndedCallInfo {
            at: SystemTime::UNIX_EPOCH,
            method: "/t.T/A",
            peer: String::new(),
            transport: "tcp",
            code,
            took: Duration::ZERO,
            requests: (1, 2),
            responses: (0, 0),
            keys: Vec::new(),
        }
    }

    #[test]
    fn watchers_see_the_calls_that_they_want() {
        let stats = Arc::new(CallStats::new(METHODS.iter()));
        let show = |code| stats.show("/t.T/A", code, || ended(code));
        let watcher = Arc::<Failures>::default();
        assert!(!stats.is_watched());
        let watch = CallWatch::begin(&stats, Arc::clone(&watcher) as _).unwrap();
        assert!(stats.is_watched());
        show(Code::Ok);
        show(Code::NotFound);
        drop(watch);
        assert!(!stats.is_watched());
        show(Code::Aborted);
        let seen: Vec<_> = watcher.0.lock().iter().map(|call| call.code).collect();
        assert_eq!(seen, [Code::NotFound]);
    }

    #[test]
    fn watchers_are_few() {
        let stats = Arc::new(CallStats::new(METHODS.iter()));
        let watch = || CallWatch::begin(&stats, Arc::<Failures>::default());
        let mut watches: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none());
        watches.pop();
        assert!(watch().is_some());
    }

    #[test]
    fn last_failed_calls_are_kept() {
        let stats = CallStats::new(METHODS.iter());
        for number in 0..FAILED_CALLS_MAX + 3 {
            stats.keep_failed(failed(&number.to_string()));
        }
        let kept = stats.failed();
        assert_eq!(kept.len(), FAILED_CALLS_MAX);
        assert_eq!((&*kept[0].message, &*kept[63].message), ("66", "3"));
    }
}
