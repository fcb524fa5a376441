//! The effects of a device's events on the connections of its workers, over a scripted device.

use super::tests::{End, Recorder, Rig, frame_arrives, until};
use super::*;
use crate::link::candidate::PROOF_TIMEOUT;
use crate::testing::scripted::SCRIPTED_ADDRESS;
use crate::verbs::{AsyncEvent, AsyncEventKind};

impl Rig {
    fn happen(&self, kind: AsyncEventKind) {
        self.sim.happen(AsyncEvent { kind, port: None, queue_pair_number: None });
    }

    fn happen_to_port(&self, kind: AsyncEventKind, port: u8) {
        self.sim.happen(AsyncEvent { kind, port: Some(port), queue_pair_number: None });
    }

    async fn is_counted(&self, kind: AsyncEventKind, count: u64) {
        until("the event", || self.upgrade.devices()[0].event_count(kind) == count).await;
    }

    fn declined(&self) -> Option<String> {
        let local = Some((SCRIPTED_ADDRESS, 7000).into());
        let addresses = Addresses { local, ..Addresses::default() };
        self.upgrade.prepare(&addresses, None).err().map(|declined| declined.reason)
    }
}

/// The connection ends, for a reason that has these words.
async fn ends(end: &End, recorder: &Recorder, text: &str) {
    until("the halt", || end.connection().ending.is_cancelled()).await;
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let reason = recorder.closed().map(|reason| reason.to_string()).unwrap_or_default();
    assert!(reason.contains(text), "{reason}");
}

#[tokio::test]
async fn a_port_that_stays_down_ends_its_connections() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    rig.happen_to_port(AsyncEventKind::PortError, 2);
    rig.is_counted(AsyncEventKind::PortError, 1).await;
    assert!(!end.connection().ending.is_cancelled(), "it is another port");

    rig.sim.set_port_down(true);
    rig.happen_to_port(AsyncEventKind::PortError, 1);
    ends(&end, &recorder, "port 1 of sim went down").await;
    let reason = rig.declined().expect("nothing can be offered");
    assert!(reason.contains("port 1 of sim") && reason.contains("not active"), "{reason}");

    rig.sim.set_port_down(false);
    rig.happen_to_port(AsyncEventKind::PortActive, 1);
    rig.is_counted(AsyncEventKind::PortActive, 1).await;
    let (next, heard) = rig.open();
    frame_arrives(&next, &heard, b"over the same lane").await;
    assert_eq!((rig.upgrade.lanes().len(), rig.sim.openings()), (1, (1, 1)));
}

#[tokio::test]
async fn a_device_in_use_is_not_opened_again() {
    let rig = Rig::new();
    let ends: Vec<_> = (0..10).map(|_| rig.open()).collect();
    assert_eq!(rig.sim.openings(), (1, 1));
    rig.happen(AsyncEventKind::GidChange);
    rig.is_counted(AsyncEventKind::GidChange, 1).await;
    let (next, heard) = rig.open();
    frame_arrives(&next, &heard, b"looked up anew").await;
    assert_eq!(rig.sim.openings(), (1, 1), "what is known is dropped, and not the device");
    drop(ends);
}

#[tokio::test]
async fn a_device_that_no_worker_was_made_on_is_closed() {
    let rig = Rig::new();
    rig.sim.limit_registered_bytes(0);
    assert!(rig.declined().is_some());
    until("it is closed", || rig.sim.openings() == (1, 0)).await;
}

/// Such a runtime drops a spawned task at once, in the thread that spawns it. A thread that
/// prepares a path can do that after the runtime has gone.
#[test]
fn on_a_runtime_that_has_gone_nothing_is_made_and_nothing_hangs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    let (say, said) = std::sync::mpsc::channel();
    let preparing = std::thread::spawn(move || {
        let _entered = handle.enter();
        let rig = Rig::new();
        let reason = rig.declined();
        say.send((reason, rig.upgrade.lanes(), rig.sim.openings())).unwrap();
    });
    let (reason, workers, openings) = said.recv_timeout(PROOF_TIMEOUT).expect("an answer");
    assert!(reason.is_some_and(|reason| reason.contains("the RDMA lane has ended")));
    assert_eq!((workers, openings), (Vec::new(), (1, 0)));
    preparing.join().unwrap();
}

#[tokio::test]
async fn a_lost_device_ends_everything_on_it_is_closed_and_found_anew() {
    let rig = Rig::new();
    let all = [rig.open(), rig.open()];
    rig.happen(AsyncEventKind::DeviceFatal);
    for (end, recorder) in &all {
        // The device gives nothing back, and no end waits for it.
        until("the end", || recorder.closed().is_some()).await;
        let reason = recorder.closed().map(|reason| reason.to_string()).unwrap_or_default();
        assert_eq!(reason, "the RDMA device sim is gone (DeviceFatal)");
        tokio::time::timeout(PROOF_TIMEOUT, end.connection().ended.cancelled()).await.unwrap();
    }
    assert_eq!(rig.upgrade.lanes(), []);
    assert!(!rig.upgrade.devices()[0].is_open);
    drop(all);
    until("the device is closed", || rig.sim.openings() == (1, 0)).await;

    let (next, heard) = rig.open();
    frame_arrives(&next, &heard, b"over a new opening").await;
    assert_eq!(rig.sim.openings(), (2, 1));
    let status = &rig.upgrade.devices()[0];
    assert!(status.is_open && status.event_count(AsyncEventKind::DeviceFatal) == 1);
}

#[tokio::test]
async fn an_event_of_a_queue_pair_ends_its_connection_alone() {
    let kinds = [
        AsyncEventKind::QueuePairFatal,
        AsyncEventKind::QueuePairRequestError,
        AsyncEventKind::QueuePairAccessError,
    ];
    for kind in kinds {
        let rig = Rig::new();
        let ((bad, recorder), (good, heard)) = (rig.open(), rig.open());
        let queue_pair_number = Some(bad.number);
        rig.sim.happen(AsyncEvent { kind, port: None, queue_pair_number });
        ends(&bad, &recorder, &format!("queue pair {} of sim broke ({kind:?})", bad.number)).await;
        frame_arrives(&good, &heard, b"untouched").await;
    }
}

#[tokio::test]
async fn a_broken_shared_queue_ends_its_worker_alone() {
    for kind in [AsyncEventKind::SharedReceiveQueueError, AsyncEventKind::CompletionQueueError] {
        let rig = Rig::new();
        let (end, recorder) = rig.open();
        rig.happen(kind);
        until("the end", || recorder.closed().is_some()).await;
        let reason = recorder.closed().map(|reason| reason.to_string()).unwrap_or_default();
        assert_eq!(reason, format!("a queue of sim broke ({kind:?})"));
        drop(end);
        let (next, heard) = rig.open();
        until("one lane", || rig.sim.posted_receives() == 256).await;
        frame_arrives(&next, &heard, b"another lane").await;
    }
}

#[tokio::test]
async fn a_connection_whose_address_is_gone_ends() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    rig.happen_to_port(AsyncEventKind::GidChange, 1);
    rig.is_counted(AsyncEventKind::GidChange, 1).await;
    frame_arrives(&end, &recorder, b"its own is still there").await;

    rig.sim.set_gid_gone(true);
    rig.happen_to_port(AsyncEventKind::GidChange, 1);
    ends(&end, &recorder, "sim no longer has the connection's address").await;
    assert!(rig.declined().is_some_and(|reason| reason.contains("no active RDMA port")));
}

#[tokio::test]
async fn the_task_of_a_device_ends_with_its_last_worker() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    let sim = rig.sim.clone();
    end.connection().fail(CloseReason::Local);
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    end.connection().ended.cancelled().await;
    drop((end, rig));
    until("the device is closed", || sim.openings() == (1, 0)).await;
}

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn the_end_of_a_worker_does_not_keep_its_thread_busy() {
    // One thread, and the worker dropped on it: who waits for the worker's end runs before it ends.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let rig = Rig::new();
        let prepared = rig.prepare();
        rig.happen(AsyncEventKind::Other(99));
        rig.is_counted(AsyncEventKind::Other(99), 1).await;
        let sim = rig.sim.clone();
        drop((prepared, rig));
        until("the device is closed", || sim.openings().1 == 0).await;
        done.send(()).unwrap();
    });
    let in_time = is_done.recv_timeout(LIMIT);
    runtime.shutdown_background();
    in_time.expect("the thread has time for others");
}
