//! The READ throttle over the semaphore that it has in production.

use std::sync::Arc;
use std::time::Duration;

use rpc_core::quota::PeerKey;

use super::*;
use crate::quota::semaphore::{FairSemaphore, PeerShare};

/// A budget, and the share of this process, which is all of it.
fn budget(len: u64) -> (Arc<FairSemaphore>, PeerShare) {
    let budget = FairSemaphore::new(len);
    let share = budget.share(PeerKey::Local);
    (budget, share)
}

fn peer(budget: &Arc<FairSemaphore>, host: u8) -> ReadThrottle<PeerShare> {
    ReadThrottle::new(budget.share(PeerKey::V4([10, 0, 0, host])), 10, 1)
}

/// Waits for a turn of `turns`, like a task.
async fn wait(turns: &mut ReadThrottle<PeerShare>) {
    let len = turns.take_wait().expect("it has to wait");
    let turn = turns.share.clone().take(len.into()).await.unwrap();
    turns.grant(turn);
}

#[tokio::test]
async fn a_connection_without_room_waits_once_for_one_turn() {
    let (now, (budget, share)) = (Instant::now(), budget(20));
    let (mut one, mut other) =
        (ReadThrottle::new(share.clone(), 10, 1), ReadThrottle::new(share, 10, 1));
    assert!(one.try_admit(0, 10, now) && one.try_admit(0, 10, now));
    assert!(!other.try_admit(0, 3, now) && !other.try_admit(0, 3, now));
    one.handle_read(0, now);
    one.handle_read(0, now);
    assert!(!other.try_admit(0, 3, now));
    assert_eq!(budget.total(), 0, "a connection that waits takes its turn and no other room");
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
    let (share, len) = (ends[1].share.clone(), ends[1].take_wait().unwrap());
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
    let (share, len) = (slow.share.clone(), slow.take_wait().unwrap());
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
    turns.retract(0);
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
    turns.retract(0);
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
    turns.retract(0);
    assert_eq!(turns.waits_since(), None);
}
