//! A worker between two completions: receives that the device refuses, and completions without an
//! event.

use super::*;

/// Returns a frame as a message of the peer.
fn frame(end: &End, text: &[u8]) -> Vec<u8> {
    let (kind, epoch) = (MessageKind::Frame, end.epoch);
    [&MessageHeader { kind, epoch, grant: granting(GRANT) }.to_bytes()[..], text].concat()
}

#[tokio::test]
async fn receives_that_the_device_has_no_room_for_are_posted_again() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    frame_arrives(&end, &recorder, b"before").await;
    until("free slots", || rig.sim.posted_receives() == 256).await;
    rig.sim.refuse_receives(3, 0, libc::ENOMEM);
    frame_arrives(&end, &recorder, b"refused").await;
    until("the slot's return", || rig.sim.posted_receives() == 256).await;
    frame_arrives(&end, &recorder, b"after").await;
    assert!(!end.connection().ending.is_cancelled());
    assert_eq!(rig.upgrade.lanes()[0].activity.refills_refused, 1);
}

#[tokio::test(start_paused = true)]
async fn with_nothing_posted_receives_are_posted_again_after_a_while() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    frame_arrives(&end, &recorder, b"before").await;
    rig.sim.silence_events();
    // More than the worker tries while it spins.
    rig.sim.refuse_receives(5000, 0, libc::ENOMEM);
    let refused = end.connection().worker.activity.refills_refused.value();
    end.deliver(&frame(&end, b"refused"));
    end.connection().worker.send(Command::Reclaim);
    until("the refusal", || end.connection().worker.activity.refills_refused.value() > refused)
        .await;
    for _ in 0..10_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if rig.sim.posted_receives() == 256 {
            return assert!(!end.connection().ending.is_cancelled());
        }
    }
    panic!("{} receives are posted", rig.sim.posted_receives());
}

/// Refuses receives in this way for ever; gives what the connection was told.
async fn refused_for_ever(errno: i32) -> String {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    frame_arrives(&end, &recorder, b"before").await;
    rig.sim.silence_events();
    rig.sim.refuse_receives(usize::MAX, 0, errno);
    end.deliver(&frame(&end, b"refused"));
    end.connection().worker.send(Command::Reclaim);
    for _ in 0..20_000 {
        if let Some(reason) = recorder.closed() {
            return reason.to_string();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the lane does not end");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_takes_no_receives_for_long_ends_its_worker() {
    let text = refused_for_ever(libc::ENOMEM).await;
    assert!(text.contains("has accepted no receive for 5s: 1 slots wait"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_broken_ends_its_worker_at_once_and_says_why() {
    let text = refused_for_ever(libc::EIO).await;
    assert!(text.contains("post receives"), "{text}");
}

#[tokio::test]
async fn what_completes_just_before_the_queue_is_armed_needs_no_event() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    frame_arrives(&end, &recorder, b"before").await;
    let completion = rig.sim.fill(0, &frame(&end, b"silent"), end.number);
    rig.sim.silence_events();
    rig.sim.complete_when_armed(completion);
    // It is about to sleep, or is woken by this and then is.
    end.connection().worker.send(Command::Reclaim);
    until("the frame", || recorder.frames().last().is_some_and(|it| it == &b"silent"[..])).await;
}
