//! Connections that come and go while the lane is busy.

use super::*;
use crate::sys::provider::QueueIdentity;

/// Polls in which as much comes out as a completion queue of the device holds, several times.
const POLLS: u64 = 4 * 10_000 / 32;

/// Lets the lane find completions with every poll, however many it takes.
fn flood(rig: &Rig) {
    let identity = QueueIdentity::new(4000).unwrap();
    let work_id = identity.work_id(WorkKind::Send, 0).to_u64();
    rig.sim.flood(RawCompletion { work_id, ..RawCompletion::default() });
}

/// Lets the lane work until something holds, or it has polled so often.
async fn within_polls(rig: &Rig, mut holds: impl FnMut() -> bool) {
    let polls = || rig.upgrade.lanes()[0].activity.polls;
    let end = polls() + POLLS;
    while polls() < end {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it has not happened within {POLLS} polls");
}

#[tokio::test]
async fn a_drained_connection_ends_while_the_lane_is_busy() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    flood(&rig);
    end.connection().fail(CloseReason::Local);
    end.flush();
    within_polls(&rig, || recorder.closed().is_some()).await;
    assert_eq!(rig.upgrade.lanes()[0].missing_slots, 0);
}

#[tokio::test]
async fn a_busy_lane_frees_the_entries_of_dead_queue_pairs() {
    let rig = Rig::new();
    let (_end, _recorder) = rig.open();
    let claimed = rig.upgrade.lanes()[0].claimed_entries;
    let (gone, recorder) = rig.open();
    flood(&rig);
    gone.connection().fail(CloseReason::Local);
    gone.flush();
    within_polls(&rig, || recorder.closed().is_some()).await;
    within_polls(&rig, || rig.upgrade.lanes()[0].claimed_entries == claimed).await;
}

#[tokio::test]
async fn connections_that_come_at_once_ask_for_slots_once() {
    let rig = Rig::new();
    let ends: Vec<_> = (0..35).map(|_| rig.connect()).collect();
    let worker = Arc::clone(&ends[0].connection().worker);
    let is_asleep = || worker.is_asleep();
    until("the lane's sleep", is_asleep).await;
    let _more: Vec<_> = (0..5).map(|_| rig.prepare()).collect();
    let commands = worker.commands();
    let reclaims = commands.iter().flatten().filter(|it| matches!(it, Command::Reclaim)).count();
    assert!(worker.shares.quota().is_short(), "the slots are not short");
    assert_eq!(reclaims, 1);
}
