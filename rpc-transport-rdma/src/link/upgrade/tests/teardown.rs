//! The memory that a peer may read when its queue pairs cannot be destroyed.

use super::*;

/// A rig whose device refuses to destroy queue pairs, and an end that has offered a large frame.
fn offered() -> (Rig, End, Arc<Recorder>) {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    send_large(&end);
    rig.sim.fail_destroying();
    (rig, end, recorder)
}

#[tokio::test]
async fn what_a_queue_pair_that_stays_serves_is_leaked() {
    let (rig, end, recorder) = offered();
    let in_use = rig.upgrade.lanes()[0].source_bytes_in_use;
    assert!(in_use > 0, "the frame is offered");
    end.connection().fail(CloseReason::Local);
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    end.connection().ended.cancelled().await;
    let worker = &rig.upgrade.lanes()[0];
    assert_eq!(worker.source_bytes_in_use, in_use, "the next user's bytes would lie there");
    assert_eq!(worker.activity.offers_leaked, 1);
}

#[tokio::test]
async fn what_a_queue_pair_serves_is_free_when_that_is_gone() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    send_large(&end);
    end.connection().fail(CloseReason::Local);
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    end.connection().ended.cancelled().await;
    let worker = &rig.upgrade.lanes()[0];
    assert_eq!((worker.source_bytes_in_use, worker.activity.offers_leaked), (0, 0));
}

/// The worker's task is dropped with its runtime, which takes no blocking work by then: the path is
/// dropped in place.
#[test]
fn a_path_that_is_dropped_with_its_runtime_keeps_the_order() {
    for does_fail in [false, true] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = runtime.enter();
        let rig = Rig::new();
        let (end, recorder) = rig.open();
        send_large(&end);
        let sources = Arc::clone(&end.connection().worker.sources);
        if does_fail {
            rig.sim.fail_destroying();
        }
        drop(inside);
        runtime.shutdown_background();
        assert!(recorder.closed().is_some(), "the handler hears of it");
        assert_eq!(rig.sim.queue_pairs_left() > 0, does_fail);
        assert_eq!(sources.bytes_in_use() > 0, does_fail, "readable as long as the queue pair is");
    }
}

/// A connection registers no memory for its control messages: that would be a firmware command.
#[tokio::test]
async fn control_slots_are_the_lanes_and_go_back_to_it() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let slots = Arc::clone(&end.connection().worker.control_slots);
    assert_eq!(slots.count() as usize - slots.available(), CONTROL_SLOTS as usize);
    let taken: Vec<_> = std::iter::from_fn(|| slots.try_take()).collect();
    let prepared = rig.prepare();
    let peer = prepared.conn_params();
    let declined = prepared.join(&peer).err().unwrap();
    assert_eq!(declined.to_string(), NO_CONTROL_SLOT);
    drop(taken);
    let (other, _) = rig.open();
    assert_eq!(slots.count() as usize - slots.available(), 2 * CONTROL_SLOTS as usize);
    for end in [&end, &other] {
        end.connection().fail(CloseReason::Local);
        end.flush().await;
        end.connection().ended.cancelled().await;
    }
    assert!(recorder.closed().is_some());
    until("the slots", || slots.available() == slots.count() as usize).await;
}
