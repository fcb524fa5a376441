//! READs of several connections, which together may have no more outstanding than the device is to
//! have.

use super::cancel::reads;
use super::*;

const MIB: u64 = 1 << 20;

/// READs of 1 MiB that the device has outstanding: of two connections.
const READS_MAX: usize = 2 * OF_ONE;

/// READs that a single connection has outstanding: as many as a scripted device agrees to.
const OF_ONE: usize = 4;

/// Connections that are offered eight READs each, of which the third finds no room.
async fn wanting(rig: &Rig) -> Vec<(End, Arc<Recorder>)> {
    let ends: Vec<_> = (0..3).map(|_| rig.open()).collect();
    for (end, _) in &ends[..2] {
        end.offer(3, &[8 * MIB], 8 * MIB);
        until("the first READs", || reads(end).len() == OF_ONE).await;
    }
    let (third, recorder) = &ends[2];
    third.offer(3, &[8 * MIB], 8 * MIB);
    waits_to_read(third, recorder).await;
    assert_eq!(counts(&ends), [OF_ONE, OF_ONE, 0]);
    ends
}

/// The connection has memory, and stands in the line of those who want to read.
async fn waits_to_read(end: &End, recorder: &Recorder) {
    let waits = || end.connection().look(State::waits_to_read).unwrap();
    until("its place in the line", waits).await;
    frame_arrives(end, recorder, b"meanwhile").await;
}

fn counts(ends: &[(End, Arc<Recorder>)]) -> Vec<usize> {
    ends.iter().map(|(end, _)| reads(end).len()).collect()
}

#[tokio::test]
async fn connections_take_turns_at_what_may_be_read_at_a_time() {
    let rig = Rig::new();
    let ends = wanting(&rig).await;
    let mut completed = [0; 3];
    for turn in 0.. {
        let Some(next) = (0..3).map(|i| (turn + i) % 3).find(|i| completed[*i] < counts(&ends)[*i])
        else {
            break;
        };
        let before = counts(&ends).iter().sum::<usize>();
        ends[next].0.complete(&reads(&ends[next].0)[completed[next]]);
        completed[next] += 1;
        until("the next READ", || counts(&ends).iter().sum::<usize>() == (before + 1).min(24))
            .await;
        let behind = completed.iter().sum::<usize>();
        assert!(counts(&ends).iter().sum::<usize>() - behind <= READS_MAX);
        if turn == 0 {
            assert_eq!(counts(&ends), [OF_ONE, OF_ONE, 1], "it has waited longest");
        }
    }
    for (_, recorder) in &ends {
        until("the frame", || recorder.frames().iter().any(|it| it.len() == 8 << 20)).await;
    }
}

#[tokio::test]
async fn an_ended_connection_returns_reads_after_the_device() {
    let rig = Rig::new();
    let ends = wanting(&rig).await;
    let (first, recorder) = &ends[0];
    first.connection().fail(CloseReason::Local);
    frame_arrives(&ends[2].0, &ends[2].1, b"meanwhile").await;
    assert_eq!(counts(&ends), [OF_ONE, OF_ONE, 0], "its READs are out");
    first.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let ended = first.connection().ended.cancelled();
    tokio::time::timeout(LIMIT, ended).await.expect("it ends");
    until("the third's READs", || counts(&ends)[2] == OF_ONE).await;
}

#[tokio::test]
async fn a_connection_that_ends_while_it_waits_blocks_no_other() {
    let rig = Rig::new();
    let ends = wanting(&rig).await;
    let (late, recorder) = rig.open();
    late.offer(3, &[MIB], MIB);
    waits_to_read(&late, &recorder).await;
    ends[2].0.say(MessageKind::Cancel { transfer: 3 }, &[]);
    frame_arrives(&ends[2].0, &ends[2].1, b"after the cancel").await;
    for read in 0..2 {
        ends[0].0.complete(&reads(&ends[0].0)[read]);
    }
    until("a READ behind two turns", || reads(&late).len() == 1).await;
    assert!(reads(&ends[2].0).is_empty());
}

impl Rig {
    /// A connection with a peer at this address.
    pub(super) fn open_to(&self, host: u8) -> (End, Arc<Recorder>) {
        let peer = Some(([10, 0, 0, host], 7000).into());
        self.open_from(&Addresses { peer, ..Self::addresses() })
    }
}

/// The device of one peer answers nothing, on however many connections. In turns of READs, which
/// are the only clock here: each of the other's frames takes two rounds of four.
#[tokio::test]
async fn a_peer_that_answers_nothing_keeps_its_share_and_no_more() {
    let rig = Rig::new();
    let slow: Vec<_> = (0..3).map(|_| rig.open_to(2)).collect();
    for (end, _) in &slow {
        end.offer(3, &[8 * MIB], 8 * MIB);
    }
    let outstanding = || slow.iter().map(|(end, _)| reads(end).len()).sum::<usize>();
    until("the slow peer's READs", || outstanding() == READS_MAX / 2).await;
    for (end, recorder) in slow.iter().filter(|(end, _)| reads(end).len() < OF_ONE) {
        waits_to_read(end, recorder).await;
    }
    let (other, recorder) = rig.open_to(3);
    for frame in 0..4 {
        other.offer(3 + frame, &[4 * MIB], 4 * MIB);
        for read in 0..4 {
            let index = 4 * frame as usize + read;
            until("the next READ", || reads(&other).len() > index).await;
            other.complete(&reads(&other)[index]);
        }
        let large = || recorder.frames().iter().filter(|frame| frame.len() == 4 << 20).count();
        until("the frame", || large() == frame as usize + 1).await;
    }
    assert_eq!(outstanding(), READS_MAX / 2);
    let worker = Arc::clone(&other.connection().worker);
    assert_eq!(worker.reads.total(), READS_MAX as u64 / 2 * MIB);
    for (end, _) in &slow {
        end.connection().fail(CloseReason::Local);
        end.flush().await;
    }
    until("what it held", || worker.reads.total() == 0).await;
}

/// Time passes, and everything that is due runs.
async fn pass(seconds: u64) {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_read_answers_loses_its_connection() {
    let rig = Rig::new();
    let (end, recorder) = rig.open_to(2);
    end.offer(3, &[8 * MIB], 8 * MIB);
    until("the first READs", || reads(&end).len() == OF_ONE).await;
    for read in 0..3 {
        pass(9).await;
        // Four are outstanding, and the last of them was posted long ago.
        assert!(!end.connection().ending.is_cancelled(), "{read} were answered in time");
        end.complete(&reads(&end)[read]);
        until("the next READ", || reads(&end).len() == OF_ONE + read + 1).await;
    }
    pass(16).await;
    assert!(end.connection().ending.is_cancelled(), "it has answered nothing for 16 s");
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let Some(CloseReason::Failed(text)) = recorder.closed() else {
        panic!("{:?}", recorder.closed())
    };
    assert!(text.contains("10s (rdma.read_timeout)"), "{text}");
    let worker = Arc::clone(&end.connection().worker);
    until("what it held", || worker.reads.total() == 0 && worker.sinks.bytes_in_use() == 0).await;
}

/// A peer offers twice as many frames as READs may be outstanding.
#[tokio::test]
async fn frames_whose_turn_has_not_come_hold_no_memory() {
    let rig = Rig::new();
    let (end, recorder) = rig.open_to(2);
    let worker = Arc::clone(&end.connection().worker);
    for (transfer, _) in (3..).zip(0..2 * OF_ONE) {
        end.offer(transfer, &[4 * MIB], 4 * MIB);
    }
    until("the first READs", || reads(&end).len() == OF_ONE).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let held = worker.sinks.bytes_in_use();
    println!("{} frames of 4 MiB are offered, and hold {held} bytes", 2 * OF_ONE);
    // The worker may post all READs of the first frame before it sees the second offer. At most, as
    // many frames as READs have some left to post, and one more has posted all of its own.
    let most = OF_ONE as u64 + 1;
    assert!((4 * MIB..=most * 4 * MIB).contains(&held), "{held}");
    // All are read in the end, whatever waited.
    for read in 0..2 * OF_ONE * 4 {
        until("the next READ", || reads(&end).len() > read).await;
        end.complete(&reads(&end)[read]);
    }
    until("all frames", || recorder.frames().len() == 2 * OF_ONE).await;
}
