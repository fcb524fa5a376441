//! The READ throttle: one connection's share of the READ bytes in flight on a device, and how long
//! its peer takes to answer.
//!
//! ```text
//!   None ──no room──> Wanted ──a task waits for it──> Waiting ──granted──> None, with a turn
//! ```
//! Peers share the bytes ([`PeerShare`]). What comes free goes to the peer that waits longest for
//! it, unless that one has more than another: a peer that answers slowly keeps its own share and
//! takes no turn of the others. A turn is one READ, so that connections of a peer take turns as
//! long as there is less room than they want. The waiting is done elsewhere, and time is an
//! argument.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::fair::semaphore::{FairPermit, PeerShare};

/// What a connection holds of the bytes, and whether it waits for more.
#[derive(Debug)]
pub(crate) struct ReadThrottle {
    /// In bytes.
    share: PeerShare,
    /// What a turn is worth: the longest READ.
    turn_len: u32,
    queues: Vec<Admitted>,
    turn: Option<FairPermit>,
    wait: Wait,
}

/// The READs of one queue that were admitted and have not completed.
#[derive(Debug, Default)]
struct Admitted {
    /// In order of admission.
    permits: VecDeque<FairPermit>,
    /// Since when the oldest of them is the oldest; READs of a queue complete in order.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    Wanted,
    Waiting,
}

impl ReadThrottle {
    /// Takes part in the share of a peer with READs of at most `turn_len` bytes, which complete in
    /// order on each of so many queues.
    pub(crate) fn new(share: PeerShare, turn_len: u32, queues: usize) -> Self {
        let queues = (0..queues).map(|_| Admitted::default()).collect();
        Self { share, turn_len, queues, turn: None, wait: Wait::None }
    }

    /// Takes room for a READ of `len` bytes on `queue` at `now`; false when there is none, and this
    /// end has to wait.
    pub(crate) fn try_admit(&mut self, queue: usize, len: u32, now: Instant) -> bool {
        let of_turn = self.turn.take().and_then(|mut turn| turn.split(len.into()));
        let permit = match of_turn {
            Some(permit) => Some(permit),
            None if self.wait == Wait::None => self.share.try_take(len.into()),
            None => return false,
        };
        match permit {
            Some(permit) => self.queues[queue].admit(permit, now),
            None => self.wait = Wait::Wanted,
        }
        self.wait == Wait::None
    }

    /// What a task has to wait for now, and then to [grant](Self::grant). Returned once.
    pub(crate) fn take_wait(&mut self) -> Option<(PeerShare, u32)> {
        if self.wait != Wait::Wanted {
            return None;
        }
        self.wait = Wait::Waiting;
        Some((self.share.clone(), self.turn_len))
    }

    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait == Wait::Waiting
    }

    /// Ends the wait with a turn.
    pub(crate) fn grant(&mut self, turn: FairPermit) {
        self.wait = Wait::None;
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
        admitted.since = (!admitted.permits.is_empty()).then_some(now);
    }

    /// Since when the peer's device owes the answer to a READ that it has to give next.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|admitted| admitted.since).min()
    }

    /// Gives back what the last `count` READs of `queue` were admitted with, which are not posted
    /// any more, and the turn.
    pub(crate) fn retract(&mut self, queue: usize, count: usize) {
        let admitted = &mut self.queues[queue];
        admitted.permits.truncate(admitted.permits.len().saturating_sub(count));
        if admitted.permits.is_empty() {
            admitted.since = None;
        }
        self.turn = None;
    }
}

impl Admitted {
    fn admit(&mut self, permit: FairPermit, now: Instant) {
        self.permits.push_back(permit);
        self.since.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rpc_core::peer_key::PeerKey;

    use super::*;
    use crate::fair::semaphore::FairSemaphore;

    /// A budget, and the share of this process, which is all of it.
    fn budget(len: u64) -> (Arc<FairSemaphore>, PeerShare) {
        let budget = FairSemaphore::new(len);
        let share = budget.share(PeerKey::Local);
        (budget, share)
    }

    fn peer(budget: &Arc<FairSemaphore>, host: u8) -> ReadThrottle {
        ReadThrottle::new(budget.share(PeerKey::V4([10, 0, 0, host])), 10, 1)
    }

    /// What a task does that waits for a turn of `turns`.
    async fn wait(turns: &mut ReadThrottle) {
        let (share, len) = turns.take_wait().expect("it has to wait");
        let turn = share.take(len.into()).await.unwrap();
        turns.grant(turn);
    }

    #[tokio::test]
    async fn a_connection_that_finds_no_room_waits_once_and_then_has_one_turn() {
        let (now, (budget, share)) = (Instant::now(), budget(20));
        let (mut one, mut other) =
            (ReadThrottle::new(share.clone(), 10, 1), ReadThrottle::new(share, 10, 1));
        assert!(one.try_admit(0, 10, now) && one.try_admit(0, 10, now));
        assert!(!other.try_admit(0, 3, now) && !other.try_admit(0, 3, now));
        one.handle_read(0, now);
        one.handle_read(0, now);
        wait(&mut other).await;
        assert!(other.take_wait().is_none());
        assert!(other.try_admit(0, 3, now), "its turn");
        assert_eq!(budget.total(), 3, "what a turn is worth beyond its READ is back");
        assert!(other.try_admit(0, 10, now), "there is room besides");
        assert!(!other.try_admit(0, 10, now));
    }

    #[tokio::test]
    async fn no_connection_passes_those_that_wait() {
        let (now, (budget, _)) = (Instant::now(), budget(10));
        let mut ends: Vec<_> = (0..3).map(|host| peer(&budget, host)).collect();
        assert!(ends[0].try_admit(0, 10, now) && !ends[1].try_admit(0, 1, now));
        let (share, len) = ends[1].take_wait().unwrap();
        let mut waiting = std::pin::pin!(share.take(len.into()));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        ends[0].handle_read(0, now);
        assert!(!ends[0].try_admit(0, 1, now) && !ends[2].try_admit(0, 1, now));
        ends[1].grant(waiting.await.unwrap());
        assert!(ends[1].try_admit(0, 1, now));
    }

    #[tokio::test]
    async fn a_peer_that_answers_nothing_leaves_half_to_another() {
        let (now, (budget, _)) = (Instant::now(), budget(160));
        let (mut slow, mut other) = (peer(&budget, 2), peer(&budget, 3));
        let admitted = (0..).take_while(|_| slow.try_admit(0, 10, now)).count();
        assert_eq!(admitted, 8);
        let (share, len) = slow.take_wait().unwrap();
        let mut waiting = std::pin::pin!(share.take(len.into()));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        // A hundred turns, of which none waits for an answer of the slow one.
        for _ in 0..100 {
            let admitted = (0..).take_while(|_| other.try_admit(0, 10, now)).count();
            assert_eq!(admitted, 4);
            (0..4).for_each(|_| other.handle_read(0, now));
            wait(&mut other).await;
            other.pass();
        }
    }

    #[test]
    fn queues_complete_in_no_order_with_each_other() {
        let (now, (budget, share)) = (Instant::now(), budget(30));
        let mut turns = ReadThrottle::new(share, 10, 2);
        let admitted = [(0, 10), (1, 3), (0, 4)];
        assert!(admitted.into_iter().all(|(queue, len)| turns.try_admit(queue, len, now)));
        turns.handle_read(1, now);
        assert_eq!(budget.total(), 14);
        turns.retract(0, 1);
        assert_eq!(budget.total(), 10);
        turns.handle_read(0, now);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn what_is_not_posted_and_an_unused_turn_go_back() {
        let (now, (budget, share)) = (Instant::now(), budget(30));
        let mut turns = ReadThrottle::new(share.clone(), 10, 1);
        assert!(turns.try_admit(0, 10, now) && turns.try_admit(0, 5, now));
        turns.grant(share.try_take(10).unwrap());
        turns.pass();
        assert_eq!(budget.total(), 15);
        turns.grant(share.try_take(10).unwrap());
        turns.retract(0, 1);
        assert_eq!(budget.total(), 10);
        drop(turns);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn a_peer_owes_one_answer_at_a_time_on_each_queue() {
        let (start, (_, share)) = (Instant::now(), budget(100));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut turns = ReadThrottle::new(share, 10, 2);
        assert_eq!(turns.waits_since(), None);
        assert!(turns.try_admit(0, 10, at(0)) && turns.try_admit(0, 10, at(1)));
        assert!(turns.try_admit(1, 10, at(2)));
        assert_eq!(turns.waits_since(), Some(at(0)));
        turns.handle_read(0, at(5));
        assert_eq!(turns.waits_since(), Some(at(2)), "the other queue");
        turns.handle_read(1, at(6));
        assert_eq!(turns.waits_since(), Some(at(5)), "the second has been next since then");
        turns.retract(0, 1);
        assert_eq!(turns.waits_since(), None);
    }
}
