//! Calls of both kinds, one after the other in several tasks, until they are told to stop.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use farcall::{Channel, MayHaveExecuted, NotExecuted, Status};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::ledger::{enter, look};
use crate::RigError;
use crate::conductor::wait;
use crate::failures::Failures;

/// Tasks that call.
const CALLERS: u64 = 16;

/// Maximum time for everything that is waited for.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The end of a call that enters a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    Answered,
    /// It failed, and no handler has seen it.
    NotExecuted,
    /// It failed, and a handler may have seen it.
    MayHaveExecuted,
    /// It failed, and nothing says which.
    Unmarked,
}

/// The callers' observations.
#[derive(Debug, Default)]
struct Seen {
    stop: AtomicBool,
    numbers: AtomicU64,
    looks: AtomicUsize,
    lost_looks: AtomicUsize,
    entries: Mutex<HashMap<u64, Entered>>,
    failures: Failures,
}

/// The calls.
#[derive(Debug)]
pub(super) struct Load {
    seen: Arc<Seen>,
    callers: Vec<JoinHandle<()>>,
}

/// The callers' counts so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) looks: usize,
    pub(super) lost_looks: usize,
    pub(super) entries: HashMap<u64, Entered>,
}

impl Counts {
    /// All calls of both kinds.
    pub(super) fn all(&self) -> usize {
        self.looks + self.lost_looks + self.entries.len()
    }

    /// The calls of both kinds that failed.
    pub(super) fn failed(&self) -> usize {
        self.lost_looks + self.lost_entries()
    }

    /// The calls that enter a number and failed.
    pub(super) fn lost_entries(&self) -> usize {
        self.entries.len() - self.of(Entered::Answered)
    }

    pub(super) fn of(&self, end: Entered) -> usize {
        self.entries.values().filter(|other| **other == end).count()
    }
}

impl Load {
    /// Starts calling over `channel`.
    pub(super) fn start(runtime: &Handle, channel: &Channel) -> Self {
        let seen = Arc::<Seen>::default();
        let start = |_| runtime.spawn(work(channel.clone(), Arc::clone(&seen)));
        let callers = (0..CALLERS).map(start).collect();
        Self { seen, callers }
    }

    pub(super) fn counts(&self) -> Counts {
        let looks = self.seen.looks.load(Relaxed);
        let lost_looks = self.seen.lost_looks.load(Relaxed);
        Counts { looks, lost_looks, entries: self.seen.entries.lock().clone() }
    }

    /// Waits for so many more calls of both kinds.
    pub(super) fn go_on(&self, calls: u64) -> Result<(), RigError> {
        let before = self.seen.numbers.load(Relaxed);
        until("calls go on", || self.seen.numbers.load(Relaxed) >= before + calls)
    }

    /// Lets the calls in flight end, and tells what came of all.
    pub(super) fn stop(self) -> Result<Counts, RigError> {
        self.seen.stop.store(true, Relaxed);
        until("the calls in flight end", || self.callers.iter().all(JoinHandle::is_finished))?;
        Ok(self.counts())
    }

    /// Returns the messages of calls that failed.
    pub(super) fn failures(&self) -> Vec<String> {
        self.seen.failures.shown()
    }
}

async fn work(channel: Channel, seen: Arc<Seen>) {
    while !seen.stop.load(Relaxed) {
        let number = seen.numbers.fetch_add(1, Relaxed);
        let failed = if number.is_multiple_of(2) {
            let ended = look(&channel, number).await;
            let count = if ended.is_ok() { &seen.looks } else { &seen.lost_looks };
            count.fetch_add(1, Relaxed);
            ended.err()
        } else {
            let ended = enter(&channel, number).await;
            let how = ended.as_ref().map_or_else(how_failed, |()| Entered::Answered);
            seen.entries.lock().insert(number, how);
            ended.err()
        };
        if let Some(status) = failed {
            seen.failures.add(format!("{:?}: {}", status.code(), status.message()));
        }
    }
}

fn how_failed(status: &Status) -> Entered {
    match status.source() {
        Some(mark) if mark.is::<NotExecuted>() => Entered::NotExecuted,
        Some(mark) if mark.is::<MayHaveExecuted>() => Entered::MayHaveExecuted,
        _ => Entered::Unmarked,
    }
}

/// Waits until something holds.
pub(super) fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), RigError> {
    wait::until(&format!("\"{what}\""), WAIT_LIMIT, || Ok(holds())).map(drop)
}
