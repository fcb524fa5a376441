//! The READ throttle: one connection's share of the READ bytes in flight on a device, and how long
//! its peer takes to answer.
//!
//! ```text
//!   None ──no room──> Wanted ──a task waits for it──> Waiting ──granted──> None, with a turn
//! ```
//! Peers share the bytes ([`ReadShare`]). What comes free goes to the peer that waits longest for
//! it, unless that one has more than another: a peer that answers slowly keeps its own share and
//! takes no turn of the others. A turn is one READ, so that connections of a peer take turns as
//! long as there is less room than they want. The waiting is done elsewhere, and time is an
//! argument.

use std::collections::VecDeque;
use std::fmt::Debug;

use tokio::time::Instant;

use crate::quota::semaphore::{FairPermit, PeerShare};

/// A peer's share of something that is counted in bytes.
pub(crate) trait ReadShare {
    /// A part of the share. Dropping it gives it back.
    type Permit: Debug;

    /// Takes a part if it is there at once and no earlier claim waits for it.
    fn try_take(&self, len: u64) -> Option<Self::Permit>;

    /// Splits off a part; `None` when there is less than that.
    fn split(permit: &mut Self::Permit, len: u64) -> Option<Self::Permit>;
}

/// A connection's part of the bytes, and its wait for more.
#[derive(Debug)]
pub(crate) struct ReadThrottle<S: ReadShare> {
    /// In bytes.
    share: S,
    /// Length of a turn in bytes: the longest READ.
    turn_len: u32,
    queues: Vec<Admitted<S::Permit>>,
    turn: Option<S::Permit>,
    wait: Wait,
}

/// The READs of one queue that were admitted and have not completed.
#[derive(Debug)]
struct Admitted<P> {
    /// In order of admission.
    permits: VecDeque<P>,
    /// Since when the oldest of them is the oldest; READs of a queue complete in order.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    Wanted,
    Waiting,
}

impl<S: ReadShare> ReadThrottle<S> {
    /// Takes part in the share of a peer with READs of at most `turn_len` bytes, which complete in
    /// order on each of so many queues.
    pub(crate) fn new(share: S, turn_len: u32, queues: usize) -> Self {
        let admitted = |_| Admitted { permits: VecDeque::new(), since: None };
        let queues = (0..queues).map(admitted).collect();
        Self { share, turn_len, queues, turn: None, wait: Wait::None }
    }

    /// Takes room for a READ of `len` bytes on `queue` at `now`; false when there is none, and this
    /// end has to wait.
    pub(crate) fn try_admit(&mut self, queue: usize, len: u32, now: Instant) -> bool {
        // A turn is good for one READ. The rest of a turn returns when `turn` is dropped, so a
        // short READ does not keep the bytes of a long one.
        let part = self.turn.take().and_then(|mut turn| S::split(&mut turn, len.into()));
        let permit = match part {
            Some(permit) => Some(permit),
            // While a task waits in line, this connection must not take bytes past it.
            None if self.wait == Wait::None => self.share.try_take(len.into()),
            None => return false,
        };
        match permit {
            Some(permit) => self.queues[queue].admit(permit, now),
            None => self.wait = Wait::Wanted,
        }
        self.wait == Wait::None
    }

    /// Returns the bytes that a task must wait for now and then [grant](Self::grant). Returns them
    /// once.
    pub(crate) fn take_wait(&mut self) -> Option<u32> {
        if self.wait != Wait::Wanted {
            return None;
        }
        self.wait = Wait::Waiting;
        Some(self.turn_len)
    }

    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait == Wait::Waiting
    }

    /// Ends the wait with a turn.
    pub(crate) fn grant(&mut self, turn: S::Permit) {
        self.wait = Wait::None;
        // Kept until the next READ is admitted: the task that waited for it has ended.
        self.turn = Some(turn);
    }

    /// Gives up a turn that nothing was left for.
    pub(crate) fn pass(&mut self) {
        self.turn = None;
    }

    /// Records that the oldest READ of `queue` has completed at `now`, however.
    pub(crate) fn handle_read(&mut self, queue: usize, now: Instant) {
        let admitted = &mut self.queues[queue];
        admitted.permits.pop_front();
        // READs of a queue pair are answered in order, so the next one is owed only from now on.
        admitted.since = (!admitted.permits.is_empty()).then_some(now);
    }

    /// Since when the peer's device owes the answer to a READ that it has to give next.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|admitted| admitted.since).min()
    }

    /// Gives back what the last READ of `queue` was admitted with, which is not posted any more,
    /// and the turn.
    pub(crate) fn retract(&mut self, queue: usize) {
        let admitted = &mut self.queues[queue];
        admitted.permits.pop_back();
        if admitted.permits.is_empty() {
            admitted.since = None;
        }
        self.turn = None;
    }
}

impl<P> Admitted<P> {
    fn admit(&mut self, permit: P, now: Instant) {
        self.permits.push_back(permit);
        self.since.get_or_insert(now);
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;

impl ReadShare for PeerShare {
    type Permit = FairPermit;

    fn try_take(&self, len: u64) -> Option<FairPermit> {
        self.try_take(len)
    }

    fn split(permit: &mut FairPermit, len: u64) -> Option<FairPermit> {
        permit.split(len)
    }
}
