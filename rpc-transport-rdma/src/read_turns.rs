//! One connection's part in the bytes that READs of all connections of a device may have
//! outstanding together.
//!
//! ```text
//!   None ──no room──> Wanted ──somebody waits for it──> Waiting ──granted──> None, with a turn
//! ```
//! The budget is a semaphore of tokio's: whoever waits is served in the order of waiting, and
//! nobody takes what comes free past those who wait. A turn is one READ, so that connections take
//! turns as long as there is less room than they want. Pure: the waiting is done elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a connection holds of the budget, and whether it waits for more.
#[derive(Debug)]
pub(crate) struct ReadTurns {
    /// In bytes.
    budget: Arc<Semaphore>,
    /// What a turn is worth: the longest READ, and no more than the whole budget.
    turn_len: u32,
    /// For every READ that was admitted and has not completed, by queue, in order of admission.
    admitted: Vec<VecDeque<OwnedSemaphorePermit>>,
    turn: Option<OwnedSemaphorePermit>,
    wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    Wanted,
    Waiting,
}

impl ReadTurns {
    /// Takes part in a budget with READs of at most `turn_len` bytes, which complete in order on
    /// each of so many queues.
    pub(crate) fn new(budget: Arc<Semaphore>, turn_len: u32, queues: usize) -> Self {
        let admitted = (0..queues).map(|_| VecDeque::new()).collect();
        Self { budget, turn_len, admitted, turn: None, wait: Wait::None }
    }

    /// Takes room for a READ of `len` bytes on `queue`; false when there is none, and this end has
    /// to wait.
    pub(crate) fn try_admit(&mut self, queue: usize, len: u32) -> bool {
        if let Some(mut turn) = self.turn.take()
            && let Some(permit) = turn.split(len as usize)
        {
            self.admitted[queue].push_back(permit);
            return true;
        }
        if self.wait != Wait::None {
            return false;
        }
        match Arc::clone(&self.budget).try_acquire_many_owned(len) {
            Ok(permit) => self.admitted[queue].push_back(permit),
            Err(_) => self.wait = Wait::Wanted,
        }
        self.wait == Wait::None
    }

    /// The bytes that somebody has to wait for now, and then to [grant](Self::grant); told once.
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
    pub(crate) fn grant(&mut self, turn: OwnedSemaphorePermit) {
        self.wait = Wait::None;
        self.turn = Some(turn);
    }

    /// Gives up a turn that nothing was left for.
    pub(crate) fn pass(&mut self) {
        self.turn = None;
    }

    /// Takes note that the oldest READ of `queue` has completed, however.
    pub(crate) fn handle_read(&mut self, queue: usize) {
        self.admitted[queue].pop_front();
    }

    /// Gives back what the last `count` READs of `queue` were admitted with, which are not posted
    /// any more, and the turn.
    pub(crate) fn retract(&mut self, queue: usize, count: usize) {
        let admitted = &mut self.admitted[queue];
        admitted.truncate(admitted.len().saturating_sub(count));
        self.turn = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(len: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(len))
    }

    /// What somebody does who waits for a turn of `turns`.
    async fn wait(turns: &mut ReadTurns) {
        let len = turns.take_wait().expect("it has to wait");
        let turn = Arc::clone(&turns.budget).acquire_many_owned(len).await;
        turns.grant(turn.expect("it is never closed"));
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_once_and_then_has_one_turn() {
        let budget = budget(20);
        let (mut one, mut other) =
            (ReadTurns::new(budget.clone(), 10, 1), ReadTurns::new(budget, 10, 1));
        assert!(one.try_admit(0, 10) && one.try_admit(0, 10));
        assert!(!other.try_admit(0, 3) && !other.try_admit(0, 3));
        one.handle_read(0);
        one.handle_read(0);
        wait(&mut other).await;
        assert_eq!(other.take_wait(), None);
        assert!(other.try_admit(0, 3), "its turn");
        assert_eq!(other.budget.available_permits(), 17, "what a turn is worth beyond its READ");
        assert!(other.try_admit(0, 10), "there is room besides");
        assert!(!other.try_admit(0, 10));
    }

    #[tokio::test]
    async fn nobody_passes_those_who_wait() {
        let budget = budget(10);
        let mut ends: Vec<_> = (0..3).map(|_| ReadTurns::new(budget.clone(), 10, 1)).collect();
        assert!(ends[0].try_admit(0, 10) && !ends[1].try_admit(0, 1));
        let len = ends[1].take_wait().unwrap();
        let mut waiting = std::pin::pin!(budget.clone().acquire_many_owned(len));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        ends[0].handle_read(0);
        assert!(!ends[0].try_admit(0, 1) && !ends[2].try_admit(0, 1));
        ends[1].grant(waiting.await.unwrap());
        assert!(ends[1].try_admit(0, 1));
    }

    #[test]
    fn queues_complete_in_no_order_with_each_other() {
        let budget = budget(30);
        let mut turns = ReadTurns::new(budget.clone(), 10, 2);
        assert!(turns.try_admit(0, 10) && turns.try_admit(1, 3) && turns.try_admit(0, 4));
        turns.handle_read(1);
        assert_eq!(budget.available_permits(), 16);
        turns.retract(0, 1);
        assert_eq!(budget.available_permits(), 20);
        turns.handle_read(0);
        assert_eq!(budget.available_permits(), 30);
    }

    #[test]
    fn what_is_not_posted_and_an_unused_turn_go_back() {
        let budget = budget(30);
        let mut turns = ReadTurns::new(budget.clone(), 10, 1);
        assert!(turns.try_admit(0, 10) && turns.try_admit(0, 5));
        turns.grant(budget.clone().try_acquire_many_owned(10).unwrap());
        turns.pass();
        assert_eq!(budget.available_permits(), 15);
        turns.grant(budget.clone().try_acquire_many_owned(10).unwrap());
        turns.retract(0, 1);
        assert_eq!(budget.available_permits(), 20);
        drop(turns);
        assert_eq!(budget.available_permits(), 30);
    }
}
