//! Receives of a shared receive queue that will never complete, and the queue pairs that may have
//! taken them.
//!
//! A queue pair may have taken a receive from just before it can receive until it is destroyed and
//! the completion queue was found empty after that. One that cannot be destroyed stays for ever.
//! Queue pairs come and go on any thread, so this is behind a lock, which the task that polls takes
//! only when something has changed.
//!
//! # Lost receives
//!
//! A queue pair that dies in the middle of a message may take the receive with it, and so may one
//! whose completions its driver throws out. Nothing tells. What is known is that receives are taken
//! in the order of posting, and that a queue pair completes what it takes in that order too:
//!
//! - A receive was *taken* when one that was posted later has completed.
//! - A queue pair *can have* a taken receive if it began before that was known to be taken, and has
//!   completed none that was posted later.
//! - A taken receive that no queue pair can have, and that has not completed, is *lost*. Those that
//!   are destroyed have none when the completion queue was found empty after that.
//!
//! A queue pair that died may have a receive that is not known to be taken, because nothing has
//! completed since. Until something was received that surely came after the death, one receive
//! counts as missing for it: the first message of a queue pair that began later, or the second of
//! any other.
//!
//! What is in doubt counts as missing, and is bounded by that. A connection that says nothing can
//! keep a receive in doubt for as long as it lives, since it may be in the middle of a message.
//! While nothing is in doubt none of this costs anything.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use slab::Slab;

/// The queue pairs of one shared receive queue.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    state: Mutex<ReceiversState>,
    /// Receives posted before this one were taken, as far as queue pairs that begin need to know.
    taken_before: AtomicU64,
    /// Grows with every queue pair that goes.
    changes: AtomicU64,
    /// Receives that may be missing, as last judged.
    missing: AtomicU32,
}

#[derive(Debug, Default)]
struct ReceiversState {
    living: Slab<Receiver>,
    /// Those that are destroyed, and whose completions may lie in the completion queue.
    departed: VecDeque<Departed>,
    /// Number of destroyed queue pairs that may have left a receive behind.
    deaths: u64,
}

/// A queue pair that may have a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receiver {
    /// Its number, which another may have as well when it is destroyed.
    pub(super) number: u32,
    /// It can have none that was posted before this one: those were taken when it began.
    pub(super) birth: u64,
    /// Deaths before it began.
    pub(super) deaths_before: u64,
}

#[derive(Debug)]
struct Departed {
    receiver: Receiver,
    /// It is done with when the completion queue has freed this many entries in all.
    ticket: u64,
}

/// The receives that a destroyed queue pair left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Everything that it took has completed.
    Clean,
    /// It may have taken a receive that never completes.
    Doubtful,
}

/// The queue pairs at one moment.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Those that may have a receive, whether or not they are destroyed.
    pub(super) receivers: Vec<Receiver>,
    /// Number of destroyed ones among them.
    pub(super) departed_count: usize,
    /// Number of destroyed queue pairs that may have left a receive behind.
    pub(super) deaths: u64,
}

impl Receivers {
    fn state(&self) -> MutexGuard<'_, ReceiversState> {
        self.state.lock()
    }

    /// Adds a queue pair before it can receive, and gives its place.
    pub(super) fn enter(&self, number: u32) -> usize {
        // An old value is a small one, which makes the queue pair suspect of more than it can have.
        let birth = self.taken_before.load(Ordering::Relaxed);
        let mut state = self.state();
        let deaths_before = state.deaths;
        state.living.insert(Receiver { number, birth, deaths_before })
    }

    /// Moves a queue pair that is destroyed to those whose completions may still be polled.
    pub(super) fn leave(&self, place: usize, farewell: Farewell, ticket: u64) {
        let mut state = self.state();
        let Some(receiver) = state.living.try_remove(place) else { return };
        state.departed.push_back(Departed { receiver, ticket });
        if farewell == Farewell::Doubtful {
            state.deaths += 1;
            // At once, so that what its connection held is not promised in between.
            self.missing.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of destroyed queue pairs.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the present queue pairs, after the completion queue has freed `freed` entries in
    /// all.
    pub(super) fn present(&self, freed: u64) -> Present {
        let mut state = self.state();
        state.departed.retain(|departed| departed.ticket > freed);
        let living = state.living.iter().map(|(_, receiver)| *receiver);
        let departed = state.departed.iter().map(|departed| departed.receiver);
        Present {
            receivers: living.chain(departed).collect(),
            departed_count: state.departed.len(),
            deaths: state.deaths,
        }
    }

    /// The deaths before the living queue pair of this number began.
    pub(super) fn deaths_before(&self, number: u32) -> u64 {
        let state = self.state();
        let living = state.living.iter().map(|(_, it)| it).filter(|it| it.number == number);
        living.map(|receiver| receiver.deaths_before).min().unwrap_or(0)
    }

    /// Says that receives posted before this one were taken.
    pub(super) fn set_taken_before(&self, post: u64) {
        self.taken_before.store(post, Ordering::Relaxed);
    }

    /// Says how many receives may be missing, given how many deaths that includes.
    pub(super) fn set_missing(&self, count: u32, deaths: u64) {
        let state = self.state();
        // Those that have come since were not judged.
        let since = u32::try_from(state.deaths - deaths).unwrap_or(u32::MAX);
        self.missing.store(count.saturating_add(since), Ordering::Relaxed);
    }

    /// Receives that may be missing: at least as many as are.
    pub(super) fn missing(&self) -> u32 {
        self.missing.load(Ordering::Relaxed)
    }
}

/// The known state of one queue's receives.
#[derive(Debug, Default)]
pub(super) struct LostReceives {
    /// The latest receive that has completed: all that were posted before were taken.
    newest: u64,
    /// By the number of a queue pair what it has completed while something was in doubt.
    marks: FxHashMap<u32, Mark>,
    /// Deaths that are judged, and those after which something was surely received.
    settled_deaths: u64,
    passed_deaths: u64,
    state: LossState,
    /// Completions since it was judged last.
    received: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LossState {
    /// Every receive is posted, or known to be idle.
    #[default]
    Certain,
    /// Some may be missing.
    InDoubt,
    /// Some may be missing, and more is known than when that was judged.
    Overdue,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    newest: u64,
    /// Deaths that were judged by then.
    deaths: u64,
}

/// The conclusion from the known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Receives that were posted before this one and have not completed are lost.
    pub(super) lost_before: u64,
    /// Receives that were posted before this one and have not completed may be lost.
    pub(super) doubtful_before: u64,
    /// Receives that may be lost and are not among those.
    pub(super) unseen: u32,
}

impl LostReceives {
    /// Records a completed receive, by its place in the order of posting, and the number of its
    /// queue pair. `deaths_before` says how many had died when that began.
    pub(super) fn handle_receive(
        &mut self,
        number: u32,
        post: u64,
        deaths_before: impl FnOnce() -> u64,
    ) {
        self.newest = self.newest.max(post);
        if self.state == LossState::Certain {
            return;
        }
        self.received = self.received.saturating_add(1);
        let deaths = self.settled_deaths;
        let passed = match self.marks.get_mut(&number) {
            Some(mark) => {
                mark.newest = mark.newest.max(post);
                // What it has received now came after what it had received then.
                std::mem::replace(&mut mark.deaths, deaths)
            }
            None => {
                self.marks.insert(number, Mark { newest: post, deaths });
                deaths_before().min(deaths)
            }
        };
        if passed > self.passed_deaths {
            self.passed_deaths = passed;
            self.state = LossState::Overdue;
        }
    }

    /// The latest receive that has completed.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns true if it should be judged again: more is known, or `interval` completions have
    /// come.
    pub(super) fn is_due(&self, interval: u32) -> bool {
        match self.state {
            LossState::Certain => false,
            LossState::InDoubt => self.received >= interval,
            LossState::Overdue => true,
        }
    }

    /// Judges, given the queue pairs that there are.
    pub(super) fn judge(&mut self, present: &Present) -> Verdict {
        self.received = 0;
        // Only what has died before the completion queue was empty is known to have nothing there.
        if present.departed_count == 0 {
            self.settled_deaths = present.deaths;
        }
        if !self.marks.is_empty() {
            let numbers: FxHashSet<_> = present.receivers.iter().map(|it| it.number).collect();
            self.marks.retain(|number, _| numbers.contains(number));
        }
        let floors = present.receivers.iter().map(|receiver| self.floor(receiver));
        let floor = floors.min().unwrap_or(u64::MAX);
        let unseen = present.deaths.saturating_sub(self.passed_deaths);
        Verdict {
            lost_before: floor.min(self.newest),
            doubtful_before: self.newest,
            unseen: u32::try_from(unseen).unwrap_or(u32::MAX),
        }
    }

    /// Says what is left in doubt after a verdict: receives that may be missing, queue pairs whose
    /// completions may still come included.
    pub(super) fn set_doubt(&mut self, count: u32, present: &Present) {
        let is_certain = count == 0 && present.departed_count == 0;
        self.state = if is_certain { LossState::Certain } else { LossState::InDoubt };
        if is_certain {
            self.marks.clear();
        }
    }

    /// No receive that was posted before this one is a queue pair's.
    fn floor(&self, receiver: &Receiver) -> u64 {
        let newest = self.marks.get(&receiver.number).map_or(0, |mark| mark.newest);
        receiver.birth.max(newest)
    }
}

#[cfg(test)]
#[path = "lost_receives_tests.rs"]
mod tests;

#[cfg(test)]
mod receiver_tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_suspect_until_the_queue_was_empty() {
        let receivers = Receivers::default();
        receivers.set_taken_before(7);
        let (first, second) = (receivers.enter(17), receivers.enter(18));
        receivers.leave(first, Farewell::Doubtful, 100);
        receivers.leave(second, Farewell::Clean, 197);
        assert_eq!((receivers.changes(), receivers.missing()), (2, 1));
        let later = receivers.enter(17);
        let present = receivers.present(100);
        let births: Vec<_> = present.receivers.iter().map(|it| (it.number, it.birth)).collect();
        assert_eq!(births, [(17, 7), (18, 7)]);
        assert_eq!((present.departed_count, present.deaths), (1, 1));
        assert_eq!(receivers.present(197).departed_count, 0);
        assert_eq!((receivers.deaths_before(17), receivers.deaths_before(18)), (1, 0));
        receivers.leave(later, Farewell::Doubtful, 294);
        receivers.set_missing(3, 1);
        assert_eq!(receivers.missing(), 4, "the last death is not among the three");
    }
}
