//! Queue pairs that carry READs alone, beside the one that carries messages.

use super::cancel::reads;
use super::*;
use crate::verbs::{AsyncEvent, AsyncEventKind};

const MIB: u64 = 1 << 20;

impl Rig {
    /// With as many queue pairs for READs at this end.
    fn reading(count: u8) -> Self {
        let mut rig = Self::new();
        rig.upgrade.config.read_queue_pairs = count;
        rig
    }
}

impl End {
    /// The READs that each of the queue pairs for READs has posted.
    fn reads_on(&self) -> Vec<Vec<RawSend>> {
        let numbers = self.connection().numbers().skip(1);
        numbers.map(|number| self.sim.sends_on(number)).collect()
    }

    /// The device has finished a READ of the queue pair at a position.
    fn complete_on(&self, position: usize, read: &RawSend) {
        self.complete_with(position + 1, read, 0);
    }

    fn complete_with(&self, of: usize, send: &RawSend, status: i32) {
        let queue_pair_number = self.connection().numbers().nth(of).unwrap();
        let (work_id, status) = (send.work_id, status.unsigned_abs());
        let completion = RawCompletion { work_id, status, queue_pair_number, ..Default::default() };
        self.sim.complete(completion);
    }

    /// The drain WR of a halted queue pair comes back.
    fn drain(&self, of: usize) {
        let number = self.connection().numbers().nth(of).unwrap();
        let drain_wr = *self.sim.sends_on(number).last().unwrap();
        assert_eq!(crate::verbs::WorkId::from_u64(drain_wr.work_id).kind(), WorkKind::Drain);
        self.complete_with(of, &drain_wr, 5);
    }

    /// A connection whose peer has as many queue pairs for READs.
    fn beside(rig: &Rig, peer_count: usize) -> (Self, Arc<Recorder>) {
        let mut prepared = rig.prepare();
        prepared.holding.widen(7);
        let mut peer = ConnParams { grant: GRANT, ..prepared.conn_params() };
        peer.read_ends.truncate(peer_count);
        let (epoch, window) = (prepared.epoch, prepared.holding.window());
        let number = prepared.queues.messages().number();
        let joined = prepared.join(&peer).unwrap();
        let end = Self { sim: rig.sim.clone(), joined, epoch, number, window };
        let recorder = Arc::new(Recorder::default());
        end.connection().start(recorder.clone());
        (end, recorder)
    }
}

fn counts(end: &End) -> Vec<usize> {
    end.reads_on().iter().map(Vec::len).collect()
}

#[tokio::test]
async fn reads_are_spread_and_complete_in_any_order() {
    let rig = Rig::reading(2);
    let (end, recorder) = rig.open();
    end.offer(3, &[8 * MIB], 8 * MIB);
    until("the READs", || counts(&end) == [4, 4]).await;
    assert_eq!(end.sim.sends_on(end.number), [], "messages wait for none");
    // The last of the second queue pair says that all of it is there.
    let reads = end.reads_on();
    end.complete_on(1, &reads[1][3]);
    frame_arrives(&end, &recorder, b"meanwhile").await;
    assert_eq!(recorder.frames().len(), 1);
    for read in &reads[0] {
        end.complete_on(0, read);
    }
    until("the frame", || recorder.frames().iter().any(|frame| frame.len() == 8 << 20)).await;
    until("its release", || end.sim.sends_on(end.number).len() == 1).await;
    assert_eq!(counts(&end), [4, 4]);
}

#[tokio::test]
async fn an_end_uses_as_many_as_its_peer_has() {
    let rig = Rig::reading(2);
    let (end, _told) = End::beside(&rig, 1);
    end.offer(3, &[8 * MIB], 8 * MIB);
    until("the READs", || counts(&end) == [4]).await;
    assert_eq!(rig.sim.destroyed(), 1, "the one too many");
    let (old, _told) = End::beside(&rig, 0);
    old.offer(3, &[8 * MIB], 8 * MIB);
    until("the READs", || rig.sim.sends_on(old.number).len() == 4).await;
    assert_eq!((counts(&old), reads(&old).len()), (vec![], 4));
}

#[tokio::test]
async fn with_windows_reads_use_the_message_queue_pair() {
    let mut rig = Rig::windowed(LIMIT);
    rig.upgrade.config.read_queue_pairs = 2;
    assert_eq!(rig.prepare().conn_params().read_ends, []);
}

#[tokio::test]
async fn what_cannot_be_is_declined_by_name() {
    let declined = |rig: &Rig| {
        let prepared = rig.upgrade.prepare(&Rig::addresses(), None);
        let reason = prepared.err().map(|declined| declined.reason).unwrap_or_default();
        reason.strip_prefix("rdma.").map(str::to_owned)
    };
    let mut rig = Rig::reading(9);
    let expected = "read_queue_pairs is 9: at most 8, which is what peers accept";
    assert_eq!(declined(&rig).as_deref(), Some(expected));
    (rig.upgrade.config.read_queue_pairs, rig.upgrade.config.max_reads) = (2, 0);
    let expected = "max_reads is 0: at least 1, since only READs fetch large frames";
    assert_eq!(declined(&rig).as_deref(), Some(expected));
}

#[tokio::test]
async fn a_message_where_only_reads_belong_costs_the_connection() {
    let rig = Rig::reading(2);
    let ((bad, recorder), (good, heard)) = (rig.open(), rig.open());
    let header =
        MessageHeader { kind: MessageKind::Frame, epoch: bad.epoch, grant: granting(GRANT) };
    let number = bad.connection().numbers().nth(2).unwrap();
    bad.sim.deliver(0, &header.to_bytes(), number);
    until("the halt", || bad.connection().ending.is_cancelled()).await;
    (0..3).for_each(|of| bad.drain(of));
    until("the end", || recorder.closed().is_some()).await;
    let reason = recorder.closed().unwrap().to_string();
    assert!(reason.contains("a message on a queue pair for READs"), "{reason}");
    frame_arrives(&good, &heard, b"untouched").await;
    assert_eq!(rig.sim.posted_receives(), 256, "its slot is posted again");
}

#[tokio::test]
async fn a_failed_read_ends_the_path_after_all_drains() {
    let rig = Rig::reading(2);
    let (end, recorder) = rig.open();
    let worker = Arc::clone(&end.connection().worker);
    end.offer(3, &[8 * MIB], 8 * MIB);
    until("the READs", || counts(&end) == [4, 4]).await;
    // Status 10: the peer's device refused the access.
    end.complete_with(2, &end.reads_on()[1][0], 10);
    until("the halt", || end.connection().ending.is_cancelled()).await;
    for of in [1, 0, 2] {
        assert_eq!((rig.sim.destroyed(), recorder.closed()), (0, None));
        assert!(worker.sinks.bytes_in_use() > 0, "the device may still write there");
        end.drain(of);
        tokio::task::yield_now().await;
    }
    until("the end", || recorder.closed().is_some()).await;
    let ended = end.connection().ended.cancelled();
    tokio::time::timeout(LIMIT, ended).await.expect("it ends");
    assert_eq!((rig.sim.destroyed(), worker.sinks.bytes_in_use()), (3, 0));
    assert_eq!(worker.reads.total(), 0, "what was admitted is given back");
}

#[tokio::test]
async fn an_event_of_a_queue_pair_for_reads_ends_its_connection() {
    let rig = Rig::reading(1);
    let ((bad, _told), (good, heard)) = (rig.open(), rig.open());
    let number = bad.connection().numbers().nth(1);
    let kind = AsyncEventKind::QueuePairFatal;
    rig.sim.happen(AsyncEvent { kind, port: None, queue_pair_number: number });
    until("the halt", || bad.connection().ending.is_cancelled()).await;
    frame_arrives(&good, &heard, b"untouched").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_device_did_not_take_of_the_reads_is_posted_again() {
    let rig = Rig::reading(2);
    let (end, recorder) = rig.open();
    end.sim.refuse_sends(1, libc::ENOMEM);
    end.offer(3, &[8 * MIB], 8 * MIB);
    until("the READs", || counts(&end).iter().sum::<usize>() == 5).await;
    // What was taken asks for no completion: time has to tell.
    let all = async {
        while counts(&end) != [4, 4] {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("it tries again");
    for position in 0..2 {
        end.complete_on(position, &end.reads_on()[position][3]);
    }
    until("the frame", || recorder.frames().len() == 1).await;
}
