//! Bounds on the frames that wait for a peer that grants no credit.

use tokio::time::Instant;

use super::*;

/// Leaves the peer's credits to nothing else.
fn use_up(end: &End) {
    for _ in 0..GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
}

#[tokio::test]
async fn refusals_that_a_peer_takes_no_credit_for_cost_its_connection() {
    let offend = async |bad: &End| {
        use_up(bad);
        // As after as many offers that are refused.
        let refuse = |live: &mut Live, clock: &mut Clock| {
            let refusals = (0..=16 << 10).map(|transfer| Event::Refuse { transfer });
            refusals.for_each(|refusal| live.state.handle(refusal, clock));
        };
        bad.connection().with_live(refuse).unwrap();
        assert!(!bad.connection().ending.is_cancelled());
        bad.offer(3, &[1 << 20], 1 << 20);
    };
    costs_its_connection(offend, "control messages that wait for credit").await;
}

#[tokio::test]
async fn frames_that_a_peer_takes_no_credit_for_cost_its_connection() {
    let offend = async |bad: &End| {
        let grant_windows = |live: &mut Live, _: &mut Clock| {
            for _ in 0..=GRANT + (256 << 10) {
                live.state.send(Outgoing::Control([0; HEADER_LEN])).unwrap();
            }
        };
        bad.connection().with_live(grant_windows).unwrap();
        bad.say(MessageKind::Frame, b"and on it goes");
    };
    costs_its_connection(offend, "frames that wait for credit").await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_grants_loses_its_connection() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    use_up(&end);
    end.connection().send_control([0; HEADER_LEN]).unwrap();
    let (start, ending) = (Instant::now(), &end.connection().ending);
    for _ in 0..LIMIT.as_secs() / STALL_AFTER.as_secs() + 2 {
        if ending.is_cancelled() {
            break;
        }
        // The watch is asleep before time goes on.
        tokio::task::yield_now().await;
        tokio::time::advance(STALL_AFTER + Duration::from_millis(1)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert!(ending.is_cancelled() && start.elapsed() >= LIMIT, "release_timeout is the bound");
    let closed = end.connection().closed().to_string();
    assert!(closed.contains("rdma.release_timeout"), "{closed}");
}

/// Its number names another frame when the memory for the first one is there.
#[tokio::test]
async fn memory_of_a_withdrawn_transfer_serves_no_successor() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let worker = Arc::clone(&end.connection().worker);
    let all = worker.sinks.try_take(usize::try_from(worker.sinks.bytes_max()).unwrap()).unwrap();
    end.offer(3, &[1 << 20], 1 << 20);
    frame_arrives(&end, &recorder, b"after the offer").await;
    // In one batch, so that no caller hears of the first in between.
    end.say(MessageKind::Cancel { transfer: 3 }, &[]);
    end.offer(3, &[2 << 20], 2 << 20);
    until("the word", || *recorder.withheld.lock() == [Withheld::GivenUp]).await;
    drop(all);
    until("a READ of the second", || !super::cancel::reads(&end).is_empty()).await;
    let read: u32 = super::cancel::reads(&end)
        .iter()
        .filter_map(|read| read.segment.map(|segment| segment.len))
        .sum();
    assert_eq!(read as usize, (2 << 20) - HEADER_LEN);
    assert!(!end.connection().ending.is_cancelled());
}
