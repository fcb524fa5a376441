//! Connections that come and go while the lane is busy.

use super::*;
use crate::sys::provider::QueueIdentity;

/// Lets the lane find completions with every poll, however many it takes.
fn flood(rig: &Rig) {
    let identity = QueueIdentity::new(4000).unwrap();
    let work_id = identity.work_id(WorkKind::Send, 0).to_u64();
    rig.sim.flood(RawCompletion { work_id, ..RawCompletion::default() });
}

#[tokio::test]
async fn a_drained_connection_ends_while_the_lane_is_busy() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    flood(&rig);
    end.connection().fail(CloseReason::Local);
    end.flush().await;
    until("the end of the connection", || recorder.closed().is_some()).await;
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
    gone.flush().await;
    until("the end of the connection", || recorder.closed().is_some()).await;
    let is_free = || rig.upgrade.lanes()[0].claimed_entries == claimed;
    until("the entries of the dead", is_free).await;
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
