//! The queue pairs that a lane makes ahead of its next connections.
//!
//! Making a connection's queue pairs is most of a handshake: each takes commands that the firmware
//! carries out one after the other, and a host that restarts has its clients back at once. So a
//! lane keeps a few in store. The device's bulk thread makes them one by one, and they alternate
//! between the ports of a bond as a handshake's do.
//!
//! The store is never in the way:
//!
//! - A handshake takes what there is and makes the rest itself. One that ends before it connects
//!   gives its queue pairs back.
//! - There are as many as the lane has connections, up to [`SPARES_MAX`] and to its free places. A
//!   process that has one connection keeps the queue pairs of one more, and an idle one keeps none.
//!   With its places taken, a lane locks what it was sized for.
//! - While handshakes are under way none is made. The last of them fills the store again.
//! - Where a lane is small because of the lock limit, or that is below [`LOCK_LIMIT_MIN`], there is
//!   no store.
//! - They end with the lane, and when a port or its tables change. None of them keeps a lane.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use crate::quota::admission::Admission;
use crate::verbs::{LockedMemory, Port, SpareQueuePair};

/// The most connections for which a lane keeps queue pairs: as many as handshakes of clients that
/// are admitted at a time.
const SPARES_MAX: usize = 8;

/// The least limit on locked memory with which queue pairs are made ahead. Those of a lane take
/// 300 KiB.
const LOCK_LIMIT_MIN: u64 = 64 << 20;

/// Queue pairs without a connection, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    pub(crate) messages: VecDeque<SpareQueuePair>,
    pub(crate) reads: VecDeque<SpareQueuePair>,
}

/// The store of one lane.
#[derive(Debug)]
pub(crate) struct SpareStore {
    /// The most connections that it has queue pairs for.
    pub(super) max: usize,
    /// Queue pairs for READs of one connection.
    reads_each: usize,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    spares: Spares,
    refill: Refill,
}

/// The making of queue pairs for the store. A single command at a time makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refill {
    Idle,
    Running,
    /// The command that is under way is the last: what it makes may not be wanted any more.
    Stopping,
    /// The lane has ended.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpareKind {
    Messages,
    Reads,
}

/// Returns the most connections that a lane keeps queue pairs for.
pub(crate) fn spares_max(memory: Option<LockedMemory>, is_cut: bool) -> usize {
    let limit = memory.and_then(|memory| memory.limit);
    let is_small = is_cut || limit.is_some_and(|limit| limit < LOCK_LIMIT_MIN);
    if is_small { 0 } else { SPARES_MAX }
}

impl Spares {
    fn queue(&mut self, kind: SpareKind) -> &mut VecDeque<SpareQueuePair> {
        match kind {
            SpareKind::Messages => &mut self.messages,
            SpareKind::Reads => &mut self.reads,
        }
    }

    /// Returns the kind that is made next for `wanted` connections. Those of a connection come in a
    /// row, so that its READ queue pairs lie on different ports of a bond.
    fn missing(&self, wanted: usize, reads_each: usize) -> Option<SpareKind> {
        let (messages, reads) = (self.messages.len(), self.reads.len());
        match () {
            () if reads < messages.min(wanted) * reads_each => Some(SpareKind::Reads),
            () if messages < wanted => Some(SpareKind::Messages),
            () => None,
        }
    }

    fn append(&mut self, mut other: Self) {
        self.messages.append(&mut other.messages);
        self.reads.append(&mut other.reads);
    }

    /// Takes one for a connection through `port`. Without one that fits the oldest makes way for
    /// those that do: the caller drops it.
    fn take(queue: &mut VecDeque<SpareQueuePair>, port: &Port) -> Option<SpareQueuePair> {
        let fitting = queue.iter().position(|spare| spare.fits(port));
        queue.remove(fitting.unwrap_or(0))
    }
}

impl SpareStore {
    pub(crate) fn new(max: usize, reads_each: usize) -> Self {
        let state = StoreState { spares: Spares::default(), refill: Refill::Idle };
        Self { max, reads_each, state: Mutex::new(state) }
    }

    /// Takes those of one connection through `port`, or as many as there are. One that does not fit
    /// is to be dropped.
    pub(crate) fn take(&self, port: &Port) -> Spares {
        let StoreState { spares, .. } = &mut *self.state();
        // All under one lock: two handshakes at once would each get others' of a row.
        let messages = Spares::take(&mut spares.messages, port).into_iter().collect();
        let reads = (0..self.reads_each).map_while(|_| Spares::take(&mut spares.reads, port));
        Spares { messages, reads: reads.collect() }
    }

    /// Returns the number of its queue pairs.
    pub(super) fn queue_pair_count(&self) -> usize {
        let spares = &self.state().spares;
        spares.messages.len() + spares.reads.len()
    }

    /// Takes back queue pairs that were not connected, and returns those that it has no room for.
    pub(super) fn put_back(&self, returned: Spares) -> Spares {
        let StoreState { spares, refill } = &mut *self.state();
        if *refill == Refill::Closed {
            return returned;
        }
        spares.append(returned);
        let (messages, reads) = (self.max, self.max * self.reads_each);
        Spares {
            messages: spares.messages.split_off(messages.min(spares.messages.len())),
            reads: spares.reads.split_off(reads.min(spares.reads.len())),
        }
    }

    /// Begins a refill to `wanted` connections. Returns true if there is something to make, and no
    /// command makes it already.
    pub(super) fn begin_refill(&self, wanted: usize) -> bool {
        let StoreState { spares, refill } = &mut *self.state();
        let begins = *refill == Refill::Idle && spares.missing(wanted, self.reads_each).is_some();
        if begins {
            *refill = Refill::Running;
        }
        begins
    }

    /// Returns the kind to make next. Without one the refill has ended.
    pub(super) fn next_missing(&self, wanted: usize, handshakes: &Admission) -> Option<SpareKind> {
        let StoreState { spares, refill } = &mut *self.state();
        // Under the lock: a handshake that is over by now either is seen here, or finds the refill
        // ended and begins another.
        let goes_on = *refill == Refill::Running && handshakes.is_idle();
        let missing = if goes_on { spares.missing(wanted, self.reads_each) } else { None };
        if missing.is_none() && *refill != Refill::Closed {
            *refill = Refill::Idle;
        }
        missing
    }

    /// Adds a queue pair that was made, or gives it back if it is not wanted any more.
    pub(super) fn add(&self, kind: SpareKind, spare: SpareQueuePair) -> Result<(), SpareQueuePair> {
        let StoreState { spares, refill } = &mut *self.state();
        if *refill != Refill::Running {
            return Err(spare);
        }
        spares.queue(kind).push_back(spare);
        Ok(())
    }

    /// Ends a refill that failed.
    pub(super) fn end_refill(&self) {
        let StoreState { refill, .. } = &mut *self.state();
        if *refill != Refill::Closed {
            *refill = Refill::Idle;
        }
    }

    /// Takes everything, and ends a refill that is under way.
    pub(super) fn flush(&self) -> Spares {
        let StoreState { spares, refill } = &mut *self.state();
        if *refill == Refill::Running {
            *refill = Refill::Stopping;
        }
        std::mem::take(spares)
    }

    /// Takes everything, for good.
    pub(super) fn close(&self) -> Spares {
        let StoreState { spares, refill } = &mut *self.state();
        *refill = Refill::Closed;
        std::mem::take(spares)
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock()
    }
}
