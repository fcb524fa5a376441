//! Outstanding receive buffers: memory that applications hold, logged when they hold it for long.
//!
//! A large frame is read into registered memory, which the message that was decoded from it aliases
//! until the last `Bytes` of it is dropped. An application that caches such a `Bytes` keeps a
//! buffer from the next frame, and finds out when there are none left. So a buffer that is
//! outstanding for longer than `RdmaConfig::lease_warn_after` is logged once, with its length and
//! age.
//!
//! One task watches all outstanding buffers of a worker. It exists while there are any that have
//! not been logged, and sleeps until the oldest is due; a buffer that comes and goes wakes no task.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rpc_core::Deadline;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::memory::LargeBuffer;

/// The outstanding receive buffers of a worker.
pub(crate) struct OutstandingBuffers {
    device: String,
    warn_after: Duration,
    runtime: Handle,
    held: Mutex<Held>,
    overdue_count: AtomicU64,
}

#[derive(Default)]
struct Held {
    entries: Slab<Entry>,
    is_watched: bool,
}

struct Entry {
    since: Instant,
    len: usize,
    is_told: bool,
}

impl OutstandingBuffers {
    /// No outstanding buffers of the device of this name; those that are held for longer than
    /// `warn_after` will be told of by a task of `runtime`.
    pub(crate) fn new(device: &str, warn_after: Duration, runtime: Handle) -> Arc<Self> {
        let (held, overdue_count) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { device: device.to_owned(), warn_after, runtime, held, overdue_count })
    }

    /// Turns a frame into bytes, which give its memory back when the last of them is dropped.
    pub(crate) fn lease(self: &Arc<Self>, frame: LargeBuffer) -> Bytes {
        let entry = Entry { since: Instant::now(), len: frame.len(), is_told: false };
        let (key, is_watched) = {
            let mut held = self.held();
            (held.entries.insert(entry), std::mem::replace(&mut held.is_watched, true))
        };
        if !is_watched {
            self.runtime.spawn(watch(Arc::downgrade(self)));
        }
        Bytes::from_owner(Outstanding { frame, key, leases: Arc::clone(self) })
    }

    /// Returns the number of frames that applications hold.
    pub(crate) fn held_count(&self) -> usize {
        self.held().entries.len()
    }

    /// Returns the number of frames that were held for too long, so far.
    pub(crate) fn overdue_count(&self) -> u64 {
        self.overdue_count.load(Ordering::Relaxed)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Tells of what is due at `now`; gives when to look again, if ever.
    fn look(&self, now: Instant) -> Option<Instant> {
        let mut due = Vec::new();
        let next = {
            let mut held = self.held();
            for (_, entry) in held.entries.iter_mut().filter(|(_, entry)| !entry.is_told) {
                if self.due_at(entry.since) <= now {
                    entry.is_told = true;
                    due.push((entry.len, now - entry.since));
                }
            }
            let untold = held.entries.iter().filter(|(_, entry)| !entry.is_told);
            let oldest = untold.map(|(_, entry)| entry.since).min();
            held.is_watched = oldest.is_some();
            oldest.map(|since| self.due_at(since))
        };
        self.overdue_count.fetch_add(due.len() as u64, Ordering::Relaxed);
        for (len, age) in due {
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide,
                WARN,
                "the application still holds received memory: copy what it keeps for long, or \
                 raise rdma.max_sink_bytes (RdmaConfig::lease_warn_after)",
                device = self.device,
                len,
                ?age
            );
        }
        // Buffers that came one after the other are logged together.
        next.map(|at| at.max(Deadline::after(now, self.warn_after / 8).0))
    }

    /// Returns the time at which a buffer is logged. A configured time of more than a year counts
    /// as a year.
    fn due_at(&self, since: Instant) -> Instant {
        Deadline::after(since, self.warn_after).0
    }
}

impl fmt::Debug for OutstandingBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("held", &self.held_count()).finish_non_exhaustive()
    }
}

/// Watches outstanding buffers until each has been logged or dropped.
async fn watch(leases: Weak<OutstandingBuffers>) {
    loop {
        let next = leases.upgrade().and_then(|leases| leases.look(Instant::now()));
        let Some(at) = next else { return };
        tokio::time::sleep_until(at).await;
    }
}

/// A frame that an application holds.
struct Outstanding {
    frame: LargeBuffer,
    key: usize,
    leases: Arc<OutstandingBuffers>,
}

impl AsRef<[u8]> for Outstanding {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.leases.held().entries.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, RegionPool};
    use crate::testing::scripted::ScriptedDevice;

    const WARN_AFTER: Duration = Duration::from_secs(8);

    fn leases() -> (Arc<RegionPool>, Arc<OutstandingBuffers>) {
        leases_told_after(WARN_AFTER)
    }

    fn leases_told_after(warn_after: Duration) -> (Arc<RegionPool>, Arc<OutstandingBuffers>) {
        let pool = RegionPool::new(&ScriptedDevice::new().device(), Access::Sink, 1 << 20);
        (pool, OutstandingBuffers::new("sim", warn_after, Handle::current()))
    }

    fn task_count() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_held_for_long_is_told_of_once() {
        let (pool, leases) = leases();
        let long = leases.lease(pool.try_take(10_000).unwrap());
        let alias = long.slice(3..5);
        drop(long);
        tokio::time::sleep(WARN_AFTER / 2).await;
        let short = leases.lease(pool.try_take(10_000).unwrap());
        tokio::time::sleep(WARN_AFTER / 2 + Duration::from_millis(2)).await;
        assert_eq!((leases.held_count(), leases.overdue_count()), (2, 1));
        drop(short);
        tokio::time::sleep(WARN_AFTER * 10).await;
        assert_eq!((leases.held_count(), leases.overdue_count()), (1, 1));
        drop(alias);
        assert_eq!((leases.held_count(), leases.overdue_count()), (0, 1));
        assert_eq!(pool.bytes_in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_time_is_too_long_before_a_lease_is_told_of() {
        for warn_after in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(u64::MAX / 8)] {
            let (pool, leases) = leases_told_after(warn_after);
            let held = leases.lease(pool.try_take(10_000).unwrap());
            assert!(leases.look(Instant::now()).is_some_and(|at| at > Instant::now()));
            assert_eq!((leases.held_count(), leases.overdue_count()), (1, 0));
            drop(held);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_watches_and_none_when_nothing_is_left_to_tell_of() {
        let (pool, leases) = leases();
        assert_eq!(task_count(), 0);
        for _ in 0..100 {
            drop(leases.lease(pool.try_take(10_000).unwrap()));
        }
        let held: Vec<_> = (0..10).map(|_| leases.lease(pool.try_take(10_000).unwrap())).collect();
        tokio::task::yield_now().await;
        assert_eq!(task_count(), 1);
        tokio::time::sleep(WARN_AFTER + Duration::from_millis(2)).await;
        assert_eq!((task_count(), leases.overdue_count()), (0, 10));
        drop(held);
        drop(leases.lease(pool.try_take(10_000).unwrap()));
        tokio::task::yield_now().await;
        assert_eq!(task_count(), 0, "nothing is held when the task looks");
    }
}
