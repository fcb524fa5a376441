//! Frames of cancelled calls on one connection.

use rpc_core::transport::{OutFrame, Transport, TransportError, Withdrawn, WriteHead};

use super::*;
use crate::link::transport::RdmaTransport;

/// The messages of header length that this end has posted: what it says beside frames and offers.
fn short_messages(end: &End) -> usize {
    let is_short = |(kind, send): &&(WorkKind, RawSend)| {
        let len = send.segment.map_or(0, |segment| segment.len as usize);
        *kind == WorkKind::Send && len == MESSAGE_HEADER_LEN
    };
    end.sends().iter().filter(is_short).count()
}

pub(super) fn reads(end: &End) -> Vec<RawSend> {
    let reads = end.sends().into_iter().filter(|(kind, _)| *kind == WorkKind::Read);
    reads.map(|(_, send)| send).collect()
}

impl End {
    /// The device has finished a READ and everything before it.
    pub(super) fn complete(&self, read: &RawSend) {
        let (work_id, queue_pair_number) = (read.work_id, self.number);
        self.sim.complete(RawCompletion { work_id, queue_pair_number, ..Default::default() });
    }
}

#[tokio::test]
async fn memory_that_was_offered_is_free_when_the_peer_says_so() {
    for outcome in [AtsStatus::Refused, AtsStatus::Stopped, AtsStatus::Read] {
        let rig = Rig::new();
        let (end, recorder) = rig.open();
        send_large(&end);
        end.connection().abandon(7);
        assert_eq!(short_messages(&end), 1, "the cancel");
        // Everything that can happen meanwhile happens, and the memory is kept.
        frame_arrives(&end, &recorder, b"another call").await;
        let worker = &end.connection().worker;
        assert!(worker.sources.bytes_in_use() > 0);
        end.say(MessageKind::Ats { transfer: first_transfer(), outcome }, &[]);
        until("the release", || worker.sources.bytes_in_use() == 0).await;
        let counts = rig.upgrade.lanes()[0].cancellations;
        let answers = [counts.not_started, counts.stopped, counts.completed];
        assert_eq!((counts.withdrawn, answers.iter().sum::<u64>()), (1, 1));
        assert!(!end.connection().ending.is_cancelled());
    }
}

#[tokio::test]
async fn an_offer_that_waits_is_taken_back_as_soon_as_it_is_out() {
    let rig = Rig::new();
    let (end, _told) = rig.open();
    for _ in 0..GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
    send_large(&end);
    end.connection().abandon(7);
    assert_eq!(end.sends().len(), GRANT as usize, "there is no credit");
    end.say_with_grant(MessageKind::Grant, GRANT + 2, &[]);
    until("the offer and its cancel", || end.sends().len() == GRANT as usize + 2).await;
    assert_eq!(short_messages(&end), 1);
}

/// The release watch has looked already, and has gone to sleep for longer.
#[tokio::test]
async fn a_frame_withdrawn_while_posted_keeps_its_deadline() {
    let rig = Rig::with_timeouts(Duration::from_millis(10), 2 * LIMIT);
    let (end, recorder) = rig.open();
    send_large(&end);
    frame_arrives(&end, &recorder, b"the watch sleeps").await;
    for _ in 1..GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
    send_large_of(&end, 8);
    end.connection().abandon(8);
    frame_arrives(&end, &recorder, b"the watch sleeps again").await;
    assert_eq!(end.sends().len(), GRANT as usize, "there is no credit");
    end.say_with_grant(MessageKind::Grant, GRANT + 2, &[]);
    until("the offer and its cancel", || end.sends().len() == GRANT as usize + 2).await;
    let ending = end.connection().ending.cancelled();
    tokio::time::timeout(LIMIT, ending).await.expect("cancel_timeout has passed");
    assert_eq!(rig.upgrade.lanes()[0].cancellations.overdue, 1);
}

#[tokio::test]
async fn a_peer_that_never_releases_loses_connection_then_memory() {
    for (is_withdrawn, knob) in
        [(false, "rdma.release_timeout"), (true, "RdmaConfig::cancel_timeout")]
    {
        keeps_it(is_withdrawn, knob).await;
    }
}

async fn keeps_it(is_withdrawn: bool, knob: &str) {
    let rig = Rig::with_timeout(Duration::from_millis(10));
    let (end, recorder) = rig.open();
    send_large(&end);
    if is_withdrawn {
        end.connection().abandon(7);
    }
    let ending = end.connection().ending.cancelled();
    tokio::time::timeout(LIMIT, ending).await.expect("the wait is bounded");
    let worker = Arc::clone(&end.connection().worker);
    if rig.sim.destroyed() == 0 {
        assert!(worker.sources.bytes_in_use() > 0, "the queue pair may still be read through");
    }
    let ended = end.connection().ended.cancelled();
    tokio::time::timeout(LIMIT, ended).await.expect("it ends");
    until("the end", || recorder.closed().is_some()).await;
    let Some(CloseReason::Failed(text)) = recorder.closed() else {
        panic!("{:?}", recorder.closed())
    };
    assert!(text.contains(knob), "{text}");
    assert_eq!((rig.sim.destroyed(), worker.sources.bytes_in_use()), (1, 0));
    assert_eq!(rig.upgrade.lanes()[0].cancellations.overdue, u64::from(is_withdrawn));
}

#[tokio::test]
async fn a_cancelled_get_keeps_memory_until_its_reads_return() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let worker = Arc::clone(&end.connection().worker);
    // More than the four READs at a time can fetch at once.
    end.offer(3, &[8 << 20], 8 << 20);
    until("the first READs", || reads(&end).len() == 4).await;
    end.say(MessageKind::Cancel { transfer: 3 }, &[]);
    let out = reads(&end);
    for read in &out[..3] {
        end.complete(read);
    }
    frame_arrives(&end, &recorder, b"another call").await;
    assert_eq!((reads(&end).len(), short_messages(&end)), (4, 0), "one READ is out");
    assert!(worker.sinks.bytes_in_use() > 0);
    end.complete(&out[3]);
    until("the release", || short_messages(&end) == 1).await;
    until("the memory", || worker.sinks.bytes_in_use() == 0).await;
    until("the word", || *recorder.withheld.lock() == [Withheld::GivenUp]).await;
    assert_eq!(recorder.frames(), [&b"another call"[..]]);
    assert_eq!(rig.upgrade.lanes()[0].cancellations.pulls_stopped, 1);
}

#[tokio::test]
async fn what_waits_for_memory_is_given_up_without_a_read() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let worker = Arc::clone(&end.connection().worker);
    let all = worker.sinks.try_take(usize::try_from(worker.sinks.bytes_max()).unwrap()).unwrap();
    // The header of the offered frame is made of ones, and so is its call's number.
    end.offer(3, &[1 << 20], 1 << 20);
    frame_arrives(&end, &recorder, b"after the offer").await;
    end.connection().abandon(u64::from_le_bytes([1; 8]));
    until("the refusal", || short_messages(&end) == 1).await;
    until("the word", || *recorder.withheld.lock() == [Withheld::GivenUp]).await;
    drop(all);
    until("the memory is not taken", || worker.sinks.bytes_in_use() == 0).await;
    assert!(reads(&end).is_empty());
}

#[tokio::test]
async fn what_has_no_memory_in_time_is_refused_and_the_limit_is_named() {
    let rig = Rig::with_timeout(Duration::from_millis(10));
    let (end, recorder) = rig.open();
    let worker = Arc::clone(&end.connection().worker);
    let _all = worker.sinks.try_take(usize::try_from(worker.sinks.bytes_max()).unwrap()).unwrap();
    end.offer(3, &[1 << 20], 1 << 20);
    let refused = async {
        while recorder.withheld.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, refused).await.expect("it is refused");
    let Withheld::NoMemory(text) = recorder.withheld.lock()[0].clone() else { panic!() };
    assert!(text.contains("1048576 bytes") && text.contains("rdma.max_sink_bytes"), "{text}");
    assert_eq!((short_messages(&end), reads(&end)), (1, vec![]));
}

#[tokio::test]
async fn a_4_gib_offer_is_refused_with_the_limit_named() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    for (transfer, len) in [(3, 5 << 30), (4, u64::from(u32::MAX) + 1), (5, 1 << 45)] {
        end.offer(transfer, &[len], len);
        until("the refusal", || recorder.withheld.lock().len() == transfer as usize - 2).await;
        let withheld = recorder.withheld.lock().last().cloned();
        let Some(Withheld::NoMemory(text)) = withheld else { panic!("{withheld:?}") };
        let (length, knob) = (format!("{len} bytes"), "(rdma.max_sink_bytes)");
        assert!(text.contains(&length) && text.contains(knob), "{text}");
    }
    frame_arrives(&end, &recorder, b"after it").await;
    assert_eq!(reads(&end), vec![]);
}

/// A frame that is given up while it is written.
struct GivenUp;

impl WriteHead for GivenUp {
    fn write_head(&mut self, _: &mut [u8]) -> Result<(), Withdrawn> {
        Err(Withdrawn)
    }
}

/// The transport over an end's path. It is never started, and has no peer on its byte stream.
fn transport(end: &End) -> RdmaTransport {
    let (stream, _peer) = tokio::io::duplex(1);
    let worker = Arc::clone(&end.joined.worker);
    let bootstrap = Box::new(super::oob::Stream(stream));
    let info = rpc_core::transport::PathInfo::new(1024, 0);
    RdmaTransport::new(Arc::clone(end.connection()), bootstrap, worker, info)
}

#[tokio::test]
async fn a_withdrawn_frame_is_not_posted_and_returns_its_memory() {
    let rig = Rig::new();
    let (end, _told) = rig.open();
    let transport = transport(&end);
    let posted = end.sends().len();
    let given_up = Err(TransportError::Withdrawn);
    // More of them than there are slots, and than there is memory for.
    for len in [100, 1 << 20] {
        for _ in 0..1000 {
            let sent = transport.send(OutFrame::new(len, None, &mut GivenUp)).await;
            assert_eq!(sent, given_up);
        }
    }
    for _ in 0..1000 {
        let sent = transport.try_send(OutFrame::new(100, None, &mut GivenUp));
        assert_eq!(sent.map(drop), given_up);
    }
    assert_eq!(end.sends().len(), posted);
}

/// A frame that no memory can hold.
struct Huge;

impl WriteHead for Huge {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        panic!("there is memory for {} bytes", head.len())
    }
}

#[tokio::test]
async fn a_4_gib_frame_is_refused_to_its_sender_by_name() {
    let rig = Rig::new();
    let (end, _told) = rig.open();
    let transport = transport(&end);
    let [mut one, mut other] = [Huge, Huge];
    let [one, other] = [&mut one, &mut other].map(|huge| OutFrame::new(5 << 30, None, huge));
    for refused in [transport.try_send(one).map(drop), transport.send(other).await] {
        let text = refused.expect_err("the pool has 512 MiB").to_string();
        assert!(text.contains("rdma.max_source_bytes"), "{text}");
        assert!(text.contains("5368709120 bytes"), "{text}");
    }
}

#[tokio::test]
async fn a_cancel_of_what_is_over_is_ignored() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    end.say(MessageKind::Cancel { transfer: 99 }, &[]);
    frame_arrives(&end, &recorder, b"after it").await;
    assert!(!end.connection().ending.is_cancelled());
}
