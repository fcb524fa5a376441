//! Connections of a whole worker over a scripted device: what a hostile peer may cost, and how
//! connections end.

mod backlog;
mod binding;
mod budget;
mod cancel;
mod delivery;
mod driver;
mod load;
mod memory_windows;
pub(super) mod oob;
mod post;
mod read_queues;
mod read_throttle;
mod teardown;

use bytes::Bytes;
use parking_lot::Mutex;
use rpc_core::transport::{Admission, Delivery, Handler, Withheld};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use rpc_core::{byte_budget::ByteBudget, handoff::Handoff};

use super::*;
use crate::connection::buffers::{Event, FramePermit, FrameShare, Outgoing, RndvPayload};
use crate::lane::Command;
use crate::proto::clock::Clock;
use crate::proto::connection::timers::STALL_AFTER;
use crate::proto::rndv::send::RndvSends;
use crate::proto::wire::{
    AtsStatus, Grant, MessageHeader, MessageKind, RTS_LEN_MAX, Rts, RtsSegment,
};
use crate::quota::slots::RESERVE;
use crate::sim::SimFaults;
use crate::testing::scripted::{SCRIPTED_ADDRESS, ScriptedDevice};
use crate::verbs::{RawCompletion, RawOperation, RawSend, RemoteKey, RemoteMemory, WorkKind};
use crate::worker::WorkerShared;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Credits that the peer grants at first.
const GRANT: u32 = 16;

/// A record of the events that a connection's handler received.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    frames: Mutex<Vec<Bytes>>,
    withheld: Mutex<Vec<Withheld>>,
    closed: Mutex<Option<CloseReason>>,
}

impl Recorder {
    fn frames(&self) -> Vec<Bytes> {
        self.frames.lock().clone()
    }

    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.closed.lock().clone()
    }
}

impl Handler for Recorder {
    fn handle_announced(&self, _: &[u8; HEADER_LEN], _: u64) -> Result<Admission, ProtocolError> {
        Ok(Admission::Accept { deadline: None, detacher: None })
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        _: Delivery,
        _: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        self.frames.lock().push(frame);
        Ok(())
    }

    fn handle_withheld(&self, _: &[u8; HEADER_LEN], reason: Withheld) -> Result<(), ProtocolError> {
        self.withheld.lock().push(reason);
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        let before = self.closed.lock().replace(reason);
        assert_eq!(before, None, "closed twice");
    }
}

/// A worker over a scripted device. Peers are played by the test.
pub(super) struct Rig {
    pub(super) sim: ScriptedDevice,
    pub(super) upgrade: RdmaUpgrade,
}

/// One end under test; the other is the test's.
pub(super) struct End {
    sim: ScriptedDevice,
    joined: ConnectedEnd,
    epoch: u32,
    pub(super) number: u32,
    window: u32,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_timeout(LIMIT)
    }

    fn with_timeout(timeout: Duration) -> Self {
        Self::with_timeouts(timeout, timeout)
    }

    fn with_timeouts(timeout: Duration, release_timeout: Duration) -> Self {
        let sim = ScriptedDevice::new();
        let config = RdmaConfig {
            receive_slots: 256,
            read_queue_pairs: 0,
            max_read_bytes: 8 << 20,
            max_read_len: 1 << 20,
            close_timeout: timeout,
            cancel_timeout: timeout,
            release_timeout,
            max_sink_bytes: 64 << 20,
            ..RdmaConfig::default()
        };
        let upgrade = RdmaUpgrade::with_provider(Box::new(sim.provider()), config);
        Self { sim, upgrade }
    }

    pub(super) fn prepare(&self) -> LocalEnd {
        self.upgrade.prepare(&Self::addresses(), None).unwrap()
    }

    fn connect(&self) -> End {
        self.connect_from(&Self::addresses())
    }

    pub(super) fn open(&self) -> (End, Arc<Recorder>) {
        self.open_from(&Self::addresses())
    }
}

impl End {
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.joined.connection.as_ref().unwrap()
    }

    /// The peer sends bytes, whatever they are.
    fn deliver(&self, message: &[u8]) {
        self.sim.deliver(0, message, self.number);
    }

    /// The peer sends a message of that kind, without a grant.
    pub(super) fn say(&self, kind: MessageKind, body: &[u8]) {
        self.say_with_grant(kind, GRANT, body);
    }

    fn say_with_grant(&self, kind: MessageKind, grant: u32, body: &[u8]) {
        let header = MessageHeader { kind, epoch: self.epoch, grant: granting(grant) };
        self.deliver(&[&header.to_bytes(), body].concat());
    }

    fn offer(&self, transfer: u32, lens: &[u64], frame_len: u64) {
        let memory = RemoteMemory { address: 4096, key: RemoteKey(1) };
        let segments = lens.iter().map(|len| RtsSegment { memory, len: *len });
        let mut segments: Vec<_> = segments.collect();
        if let Some(first) = segments.first_mut() {
            first.len -= HEADER_LEN as u64;
        }
        // A request without flags: with the first of them it would be one whose messages follow as
        // a stream, and such a request has no message.
        let offer = Rts { head: [&[1, 0][..], &[1; HEADER_LEN - 2]].concat(), segments };
        let mut body = [0; RTS_LEN_MAX];
        let len = offer.write(&mut body);
        body[..8].copy_from_slice(&frame_len.to_le_bytes());
        self.say(MessageKind::Rts { transfer }, &body[..len]);
    }

    /// Everything that this end has posted.
    fn sends(&self) -> Vec<(WorkKind, RawSend)> {
        let tag = self.connection().tag;
        let sends = self.sim.sends().into_iter();
        let sends = sends.map(|send| (crate::verbs::WorkId::from_u64(send.work_id), send));
        sends.filter(|(id, _)| id.tag() == tag).map(|(id, send)| (id.kind(), send)).collect()
    }

    /// The device halts the queue pair, and gives everything back.
    pub(super) async fn flush(&self) {
        let drain_wr = || self.sends().into_iter().rfind(|(kind, _)| *kind == WorkKind::Drain);
        until("the drain WR", || drain_wr().is_some()).await;
        let (_, drain_wr) = drain_wr().unwrap();
        let (work_id, queue_pair_number) = (drain_wr.work_id, self.number);
        let flushed = 5;
        self.sim.complete(RawCompletion {
            work_id,
            status: flushed,
            queue_pair_number,
            ..Default::default()
        });
    }
}

fn granting(count: u32) -> Grant {
    Grant { count, control_seen: 0, wants_more: false }
}

/// Lets the worker's task run until something holds. What other threads do for it takes its time,
/// also where the clock of this one stands still.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    while std::time::Instant::now() < end {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{what} did not happen");
}

pub(super) async fn frame_arrives(end: &End, recorder: &Recorder, text: &[u8]) {
    end.say(MessageKind::Frame, text);
    until("the frame", || recorder.frames().last().is_some_and(|frame| frame == text)).await;
}

/// The peer offends; its connection ends with a violation that `words` name, and no other.
pub(super) async fn costs_its_connection(offend: impl AsyncFnOnce(&End), text: &str) {
    let rig = Rig::new();
    let ((bad, recorder), (good, heard)) = (rig.open(), rig.open());
    frame_arrives(&bad, &recorder, b"before").await;
    frame_arrives(&good, &heard, b"before").await;
    offend(&bad).await;
    until("the halt", || bad.connection().ending.is_cancelled()).await;
    assert_eq!(recorder.closed(), None, "the queue pair is not drained");
    bad.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let Some(CloseReason::Protocol(error)) = recorder.closed() else {
        panic!("{:?}", recorder.closed())
    };
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!(rig.upgrade.lanes()[0].connection_count, 1);
    frame_arrives(&good, &heard, b"after").await;
    assert!(!good.connection().ending.is_cancelled());
}

#[tokio::test]
async fn messages_of_another_path_are_ignored_up_to_a_bound() {
    let offend = async |bad: &End| {
        let epoch = bad.epoch.wrapping_add(1);
        let header = MessageHeader { kind: MessageKind::Grant, epoch, grant: granting(GRANT) };
        for _ in 0..bad.window + RESERVE {
            bad.deliver(&header.to_bytes());
        }
        until("their end", || bad.sim.posted_receives() == 256).await;
        assert!(!bad.connection().ending.is_cancelled());
        for _ in 0..256 {
            bad.deliver(&header.to_bytes());
            tokio::task::yield_now().await;
        }
    };
    costs_its_connection(offend, "epoch of an RDMA message").await;
}

#[tokio::test]
async fn a_message_of_no_kind_costs_the_connection() {
    let offend = async |bad: &End| bad.deliver(&[9; 16]);
    costs_its_connection(offend, "kind of an RDMA message").await;
}

#[tokio::test]
async fn half_a_header_costs_the_connection() {
    let offend = async |bad: &End| bad.deliver(&[1; 15]);
    costs_its_connection(offend, "RDMA message").await;
}

#[tokio::test]
async fn a_grant_taken_back_costs_the_connection() {
    let offend = async |bad: &End| bad.say_with_grant(MessageKind::Grant, GRANT - 1, &[]);
    costs_its_connection(offend, "credit grant").await;
}

/// More than a peer may send that never says what it has seen, so that it is granted little.
const FLOOD: usize = 2 * (GRANT + RESERVE) as usize;

/// The peer says one thing until its connection ends, or far too often.
async fn flood(bad: &End, kind: MessageKind) {
    for _ in 0..FLOOD {
        bad.say(kind, &[1; HEADER_LEN]);
        tokio::task::yield_now().await;
        if bad.connection().ending.is_cancelled() {
            break;
        }
    }
}

#[tokio::test]
async fn messages_beyond_the_promised_slots_cost_the_connection() {
    let offend = async |bad: &End| flood(bad, MessageKind::Frame).await;
    costs_its_connection(offend, "messages sent without credit").await;
}

#[tokio::test]
async fn control_messages_beyond_the_reserve_cost_the_connection() {
    let offend = async |bad: &End| flood(bad, MessageKind::Grant).await;
    costs_its_connection(offend, "control messages without credit").await;
}

#[tokio::test]
async fn credits_returned_that_were_never_granted_cost_the_connection() {
    let offend = async |bad: &End| bad.say(MessageKind::Return { returned: 1000 }, &[]);
    costs_its_connection(offend, "returned credits").await;
}

#[tokio::test]
async fn an_idle_connection_gives_back_what_the_peer_recalls() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    end.say(MessageKind::Reclaim { keep: 1 }, &[]);
    until("the return", || !end.sends().is_empty()).await;
    // All but the one that is kept are spent, and the return took one of them.
    let connection = end.connection();
    let sent_before = end.sends().len();
    connection.send_control([0; HEADER_LEN]).unwrap();
    connection.send_control([0; HEADER_LEN]).unwrap();
    assert_eq!(end.sends().len(), sent_before + 1);
    assert_eq!(rig.upgrade.lanes()[0].activity.credit_waits, 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_credit_that_lasts_is_counted_once() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    for _ in 0..=GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
    let stalls = || rig.upgrade.lanes()[0].activity.credit_stalls;
    for expected in [1, 1] {
        // The watch is asleep before time goes on.
        tokio::task::yield_now().await;
        tokio::time::advance(STALL_AFTER + Duration::from_millis(1)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(stalls(), expected);
    }
}

#[tokio::test]
async fn connections_spread_over_workers_that_share_large_memory() {
    let sim = ScriptedDevice::new();
    let config = RdmaConfig { lanes: Some(3), receive_slots: 256, ..RdmaConfig::default() };
    let upgrade = RdmaUpgrade::with_provider(Box::new(sim.provider()), config);
    let rig = Rig { sim, upgrade };
    let ends: Vec<_> = (0..7).map(|_| rig.connect()).collect();
    let workers = rig.upgrade.lanes();
    let describe = |worker: &LaneInfo| (worker.number, worker.connection_count);
    assert_eq!(workers.iter().map(describe).collect::<Vec<_>>(), [(0, 3), (1, 2), (2, 2)]);
    assert_eq!(rig.upgrade.devices()[0].lane_count, 3);
    let _buffer = ends[0].connection().worker.sources.try_take(100_000).unwrap();
    let in_use: Vec<_> =
        rig.upgrade.lanes().iter().map(|worker| worker.source_bytes_in_use).collect();
    assert!(in_use[0] > 0 && in_use.iter().all(|bytes| *bytes == in_use[0]), "{in_use:?}");
}

#[tokio::test]
async fn a_queue_that_runs_low_halves_windows() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    let worker = &end.connection().worker;
    let limit = worker.shares.limit();
    worker.handle_receive_limit();
    until("smaller windows", || worker.shares.limit() == limit / 2).await;
    assert_eq!(rig.upgrade.lanes()[0].activity.receive_limit_events, 1);
}

#[tokio::test]
async fn a_release_of_nothing_costs_the_connection() {
    let release = MessageKind::Ats { transfer: 7, outcome: AtsStatus::Read };
    let offend = async |bad: &End| bad.say(release, &[]);
    costs_its_connection(offend, "transfer of a release").await;
}

/// The number of a connection's first transfer.
fn first_transfer() -> u32 {
    RndvSends::default().insert(0, (), None, tokio::time::Instant::now())
}

/// A share of a budget that is of no interest.
fn share() -> FrameShare {
    FrameShare::new(ByteBudget::new(1).try_take(1).unwrap(), None)
}

/// A large frame of call 7 in the worker's memory, on its way to the peer.
fn send_large(end: &End) {
    send_large_of(end, 7);
}

fn send_large_of(end: &End, call: u64) {
    let connection = end.connection();
    let buffer = connection.worker.sources.try_take(100_000).unwrap();
    let slot = connection.worker.send_slots.try_take().unwrap();
    let permit = Arc::clone(&connection.frames).try_acquire_owned().unwrap();
    let permit = FramePermit::new(permit, None);
    let payload = RndvPayload::own(buffer, share());
    connection.send(Outgoing::Rts { payload, slot, permit, call, is_given_up: false }).unwrap();
}

#[tokio::test]
async fn a_second_release_costs_the_connection() {
    let release = MessageKind::Ats { transfer: first_transfer(), outcome: AtsStatus::Read };
    let offend = async |bad: &End| {
        send_large(bad);
        let worker = &bad.connection().worker;
        assert!(worker.sources.bytes_in_use() > 0);
        bad.say(release, &[]);
        until("the release", || worker.sources.bytes_in_use() == 0).await;
        assert!(!bad.connection().ending.is_cancelled());
        bad.say(release, &[]);
    };
    costs_its_connection(offend, "transfer of a release").await;
}

#[tokio::test]
async fn an_offer_with_wrong_segments_costs_the_connection() {
    let offend = async |bad: &End| bad.offer(1, &[50, 49], 100);
    costs_its_connection(offend, "length of an offer's segments").await;
}

#[tokio::test]
async fn an_offer_without_segments_costs_the_connection() {
    let offend = async |bad: &End| bad.offer(1, &[], 0);
    costs_its_connection(offend, "segment count of an offer").await;
}

#[tokio::test]
async fn an_offer_under_a_number_in_use_costs_the_connection() {
    let offend = async |bad: &End| {
        bad.offer(3, &[10_000], 10_000);
        let is_read = |(kind, send): &(WorkKind, RawSend)| {
            *kind == WorkKind::Read && matches!(send.operation, RawOperation::Read(_))
        };
        until("a READ", || bad.sends().iter().any(is_read)).await;
        bad.offer(3, &[10_000], 10_000);
    };
    costs_its_connection(offend, "transfer of an offer").await;
}

#[tokio::test]
async fn messages_before_the_path_opens_are_kept_and_bounded() {
    let rig = Rig::new();
    let early = rig.connect();
    early.say(MessageKind::Frame, b"early");
    let recorder = Arc::new(Recorder::default());
    until("the message", || rig.sim.posted_receives() == 256).await;
    early.connection().start(recorder.clone());
    until("the frame", || recorder.frames() == [&b"early"[..]]).await;

    let flood = rig.connect();
    for _ in 0..=flood.window + RESERVE {
        flood.say(MessageKind::Frame, b"flood");
    }
    until("the halt", || flood.connection().ending.is_cancelled()).await;
    assert!(!early.connection().ending.is_cancelled());
}

#[tokio::test]
async fn a_peer_may_use_what_it_was_granted_before_the_path_opens() {
    let rig = Rig::new();
    let early = rig.connect();
    let grant = Grant { wants_more: true, ..granting(GRANT) };
    let count = early.window + 4;
    for sent in 1..=count {
        // The window has doubled with the first of them, which the peer has been told.
        let header = MessageHeader { kind: MessageKind::Frame, epoch: early.epoch, grant };
        early.deliver(&[&header.to_bytes()[..], b"early"].concat());
        until("a free slot", || rig.sim.posted_receives() == 256).await;
        assert!(!early.connection().ending.is_cancelled(), "message {sent} was one too many");
    }
    assert!(!early.sends().is_empty(), "no grant went out");
    let recorder = Arc::new(Recorder::default());
    early.connection().start(recorder.clone());
    until("the frames", || recorder.frames().len() == count as usize).await;
}

#[tokio::test]
async fn a_control_frame_does_not_overtake_the_frame_before_it() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    let connection = end.connection();
    let frame = |len| {
        let slot = connection.worker.send_slots.try_take().unwrap();
        let permit = Arc::clone(&connection.frames).try_acquire_owned().unwrap();
        let permit = FramePermit::new(permit, None);
        connection.send(Outgoing::Frame { slot, len, permit }).unwrap();
    };
    // Uses up the peer's first window, so that what follows has to wait.
    for _ in 0..GRANT {
        frame(100);
    }
    frame(200);
    connection.send_control([0; HEADER_LEN]).unwrap();
    frame(300);
    assert_eq!(end.sends().len(), GRANT as usize);
    end.say_with_grant(MessageKind::Grant, GRANT + 3, &[]);
    until("the rest", || end.sends().len() == GRANT as usize + 3).await;
    let lens: Vec<_> =
        end.sends().iter().map(|(_, send)| send.segment.unwrap().len as usize).collect();
    let body_lens = [200, HEADER_LEN, 300];
    assert_eq!(lens[GRANT as usize..], body_lens.map(|len| MESSAGE_HEADER_LEN + len));
}

#[tokio::test]
async fn a_handler_that_comes_after_the_end_is_told() {
    let rig = Rig::new();
    let end = rig.connect();
    end.deliver(&[9; 16]);
    until("the halt", || end.connection().ending.is_cancelled()).await;
    end.flush().await;
    until("the end", || rig.upgrade.lanes()[0].connection_count == 0).await;
    let recorder = Arc::new(Recorder::default());
    end.connection().start(recorder.clone());
    assert!(matches!(recorder.closed(), Some(CloseReason::Protocol(_))), "{recorder:?}");
}

#[tokio::test]
async fn commands_for_a_gone_connection_miss_its_successor() {
    let rig = Rig::new();
    let (gone, recorder) = rig.open();
    gone.connection().fail(CloseReason::Peer);
    gone.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let (successor, heard) = rig.open();
    assert_eq!(successor.connection().tag, gone.connection().tag, "the place is taken again");
    let worker = &gone.connection().worker;
    worker.send(Command::End(Arc::clone(gone.connection())));
    worker.send(Command::Open(Arc::clone(gone.connection())));
    let reason = Withheld::Expired;
    worker.send(Command::Withheld(Arc::clone(gone.connection()), [0; HEADER_LEN], reason));
    frame_arrives(&successor, &heard, b"still there").await;
    assert_eq!(heard.closed(), None);
    assert_eq!(rig.upgrade.lanes()[0].connection_count, 1);
}

#[tokio::test]
async fn an_undrained_queue_pair_is_destroyed_in_bounded_time() {
    let rig = Rig::with_timeout(Duration::from_millis(10));
    let (end, recorder) = rig.open();
    end.connection().fail(CloseReason::Peer);
    // The device gives nothing back.
    let ended = end.connection().ended.cancelled();
    tokio::time::timeout(LIMIT, ended).await.expect("it ends all the same");
    assert_eq!((recorder.closed(), rig.sim.destroyed()), (Some(CloseReason::Peer), 1));
}

#[tokio::test]
async fn nothing_holds_a_worker_whose_connections_have_ended() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let connection = Arc::downgrade(end.connection());
    let worker = Arc::downgrade(&end.connection().worker);
    end.connection().fail(CloseReason::Local);
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    end.connection().ended.cancelled().await;
    drop(end);
    until("the connection is gone", || connection.strong_count() == 0).await;
    drop(rig);
    until("the lane is gone", || worker.strong_count() == 0).await;
}

#[test]
fn a_runtime_that_goes_away_ends_its_connections() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let inside = runtime.enter();
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let prepared = rig.prepare();
    drop(inside);
    runtime.shutdown_background();
    assert!(recorder.closed().is_some(), "the handler hears of it");
    assert_eq!(rig.sim.queue_pairs_left(), 1);
    let peer = prepared.conn_params();
    let declined = prepared.join(&peer).err().expect("no task would drive it");
    assert!(declined.reason.contains("lane has ended"), "{declined}");
    assert_eq!(rig.sim.queue_pairs_left(), 0);
    let worker = Arc::downgrade(&end.connection().worker);
    drop((end, rig));
    assert_eq!(worker.strong_count(), 0, "nothing holds the lane");
}
