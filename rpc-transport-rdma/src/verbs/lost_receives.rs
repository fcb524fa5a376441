//! Which receives of a shared receive queue will never complete. Pure.
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

use rustc_hash::{FxHashMap, FxHashSet};

use super::receivers::{Present, Receiver};

/// What is known of the receives of one queue.
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

/// What follows from what is known.
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

    /// Whether it should be judged again: more is known, or `interval` completions have come.
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
