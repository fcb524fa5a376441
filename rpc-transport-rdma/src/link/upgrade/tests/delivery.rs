//! Receivers that block the worker's task: what goes on meanwhile, in which order, and how it ends.

use parking_lot::{Condvar, MutexGuard};
use tokio::runtime::Builder;

use rpc_core::transport::Delivery;

use super::*;

/// A stage for the handlers of a worker: a record of their work, and the gates that they wait at.
#[derive(Debug, Default)]
struct Stage {
    state: Mutex<StageState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StageState {
    /// The connection and the frame, as each was handed out.
    entered: Vec<(usize, String)>,
    /// Handlers that have blocked and returned.
    returned_count: usize,
    is_let_in: bool,
    is_open: bool,
}

impl Stage {
    fn state(&self) -> MutexGuard<'_, StageState> {
        self.state.lock()
    }

    fn change(&self, change: impl FnOnce(&mut StageState)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Blocks the thread until something holds.
    fn wait(&self, holds: impl Fn(&StageState) -> bool) {
        let waits = |state: &mut StageState| !holds(state);
        let mut state = self.state();
        self.changed.wait_while_for(&mut state, waits, LIMIT);
        assert!(holds(&state), "a handler was not let go");
    }

    fn frames(&self, connection: usize) -> Vec<String> {
        let state = self.state();
        let of = state.entered.iter().filter(|(of, _)| *of == connection);
        of.map(|(_, frame)| frame.clone()).collect()
    }

    fn has(&self, connection: usize, frame: &str) -> bool {
        self.frames(connection).iter().any(|entered| entered == frame)
    }
}

/// A handler that does what the frame says by its first letter, and records everything.
#[derive(Debug)]
struct Actor {
    connection: usize,
    stage: Arc<Stage>,
    recorder: Recorder,
}

impl Handler for Actor {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        self.recorder.handle_announced(prefix, len)
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        _: Delivery,
        handoff: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let count = {
            let mut state = self.stage.state();
            state.entered.push((self.connection, text.clone()));
            state.entered.len()
        };
        self.stage.changed.notify_all();
        if text.starts_with("keep") {
            // The worker stands still, so that what comes meanwhile is read at once.
            self.stage.wait(|state| state.is_let_in);
            return Ok(());
        }
        handoff.release();
        match text.split(' ').next() {
            Some("block") => self.stage.wait(|state| state.is_open),
            Some("next") => self.stage.wait(|state| state.entered.len() > count),
            // As `panic!`, without a backtrace among the output of the tests.
            Some("panic") => std::panic::resume_unwind(Box::new("on purpose")),
            _ => return Ok(()),
        }
        self.stage.change(|state| state.returned_count += 1);
        Ok(())
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        self.recorder.handle_withheld(prefix, reason)
    }

    fn handle_closed(&self, reason: CloseReason) {
        self.recorder.handle_closed(reason);
    }
}

/// Connections of one worker, with a handler each.
struct Play {
    rig: Rig,
    stage: Arc<Stage>,
    ends: Vec<End>,
    actors: Vec<Arc<Actor>>,
}

impl Play {
    /// To be made in the runtime that the worker is to run in.
    fn new(connections: usize) -> Self {
        let (rig, stage) = (Rig::new(), Arc::<Stage>::default());
        let ends: Vec<End> = (0..connections).map(|_| rig.connect()).collect();
        let actor = |connection| {
            let (stage, recorder) = (Arc::clone(&stage), Recorder::default());
            Arc::new(Actor { connection, stage, recorder })
        };
        let actors: Vec<_> = (0..connections).map(actor).collect();
        for (end, actor) in ends.iter().zip(&actors) {
            end.connection().start(Arc::<Actor>::clone(actor));
        }
        Self { rig, stage, ends, actors }
    }

    fn says(&self, connection: usize, text: &str) {
        self.ends[connection].say(MessageKind::Frame, text.as_bytes());
    }

    async fn entered(&self, connection: usize, frame: &str) {
        until(frame, || self.stage.has(connection, frame)).await;
    }

    fn opens(&self) {
        self.stage.change(|state| state.is_open = true);
    }

    async fn returned(&self, count: usize) {
        until("the end of what blocked", || self.stage.state().returned_count == count).await;
    }

    fn worker(&self) -> Arc<WorkerShared> {
        Arc::clone(&self.ends[0].connection().worker)
    }

    fn recorder(&self) -> Vec<Option<CloseReason>> {
        self.actors.iter().map(|actor| actor.recorder.closed()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_holds_up_nothing_of_its_worker() {
    let play = Play::new(2);
    play.says(0, "block");
    play.entered(0, "block").await;
    for frame in ["another's", "and one more"] {
        play.says(1, frame);
        play.entered(1, frame).await;
    }
    play.says(0, "its own");
    play.entered(0, "its own").await;
    play.ends[0].connection().send_control([0; HEADER_LEN]).unwrap();
    until("what it sends", || !play.ends[0].sends().is_empty()).await;
    assert_eq!(play.stage.state().returned_count, 0);
    play.opens();
    play.returned(1).await;
    play.says(0, "after it");
    play.entered(0, "after it").await;
    until("all slots", || play.rig.sim.posted_receives() == 256).await;
    assert_eq!(play.recorder(), [None, None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn frames_keep_their_order_across_driver_handoffs() {
    let play = Play::new(3);
    play.says(0, "keep");
    play.entered(0, "keep").await;
    let mut sent = [vec!["keep".to_owned()], Vec::new(), Vec::new()];
    for number in 0..6 {
        for (connection, sent) in sent.iter_mut().enumerate() {
            // Each of them blocks until the next frame of the worker is handed out.
            let act = if (number + connection) % 3 == 0 { "next" } else { "plain" };
            let frame = format!("{act} {number}");
            play.says(connection, &frame);
            sent.push(frame);
        }
    }
    play.stage.change(|state| state.is_let_in = true);
    play.returned(6).await;
    play.says(0, "last");
    play.entered(0, "last").await;
    sent[0].push("last".to_owned());
    for (connection, sent) in sent.iter().enumerate() {
        assert_eq!(play.stage.frames(connection), *sent);
    }
    assert_eq!(play.recorder(), [None, None, None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_worker_continues_when_one_thread_returns() {
    let play = Play::new(2);
    for frame in ["block 1", "block 2"] {
        play.says(0, frame);
        play.entered(0, frame).await;
    }
    play.says(1, "behind them");
    play.opens();
    play.entered(1, "behind them").await;
    play.returned(2).await;
    assert_eq!(play.recorder(), [None, None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_worker_lost_behind_a_blocked_handler_ends_connections() {
    let play = Play::new(2);
    play.says(0, "block");
    play.entered(0, "block").await;
    let worker = play.worker();
    assert_eq!(worker.lose(&CloseReason::Failed("the device is gone".into())), 2);
    let is_told = || play.recorder().iter().all(Option::is_some);
    until("the end of both", is_told).await;
    assert!(worker.stop.is_cancelled() && worker.is_dead());
    assert_eq!(play.stage.state().returned_count, 0);
    for reason in play.recorder().into_iter().flatten() {
        assert_eq!(reason.to_string(), "the device is gone");
    }
    play.opens();
    play.returned(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_held_up_may_have_something_to_read() {
    let play = Play::new(1);
    play.says(0, "keep");
    play.entered(0, "keep").await;
    let worker = play.worker();
    until("a late lane", || worker.has_unread()).await;
    play.stage.change(|state| state.is_let_in = true);
    until("a lane that reads", || !worker.has_unread()).await;
}

/// A worker that sleeps, and is not woken by what comes.
async fn falls_asleep(rig: &Rig, end: &End) {
    let worker = &end.connection().worker;
    rig.sim.silence_events();
    worker.send(Command::Reclaim);
    until("its sleep", || worker.is_asleep()).await;
}

#[tokio::test]
async fn what_comes_while_the_worker_sleeps_is_unread() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    falls_asleep(&rig, &end).await;
    let worker = &end.connection().worker;
    assert!(!worker.has_unread());
    end.say(MessageKind::Frame, b"while it sleeps");
    assert!(worker.has_unread());
    worker.send(Command::Reclaim);
    until("the frame", || recorder.frames() == [&b"while it sleeps"[..]]).await;
    until("a lane that has read", || !worker.has_unread()).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lies_unread_is_not_overdue() {
    for (is_withdrawn, cancel_timeout) in [(false, 4 * LIMIT), (true, LIMIT)] {
        let rig = Rig::with_timeouts(cancel_timeout, LIMIT);
        let (end, _told) = rig.open();
        send_large(&end);
        if is_withdrawn {
            end.connection().abandon(7);
        }
        falls_asleep(&rig, &end).await;
        let outcome = AtsStatus::Read;
        end.say(MessageKind::Ats { transfer: first_transfer(), outcome }, &[]);
        tokio::time::sleep(3 * LIMIT).await;
        let connection = end.connection();
        assert!(!connection.ending.is_cancelled(), "withdrawn: {is_withdrawn}");
        connection.worker.send(Command::Reclaim);
        until("the release", || connection.worker.sources.bytes_in_use() == 0).await;
        tokio::time::sleep(3 * LIMIT).await;
        assert!(!connection.ending.is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn credit_that_lies_unread_is_not_missed() {
    let rig = Rig::new();
    let (end, _told) = rig.open();
    for _ in 0..=GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
    falls_asleep(&rig, &end).await;
    assert_eq!(end.sends().len(), GRANT as usize, "there is no credit");
    end.say_with_grant(MessageKind::Grant, GRANT + 8, &[]);
    tokio::time::sleep(3 * LIMIT).await;
    assert!(!end.connection().ending.is_cancelled());
    end.connection().worker.send(Command::Reclaim);
    until("what waited", || end.sends().len() > GRANT as usize).await;
}

/// `Recorder` fails where a handler is told of an end twice.
#[test]
fn a_runtime_lost_behind_a_blocked_handler_ends_the_worker() {
    let runtime = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let threads = runtime();
    let play = threads.block_on(async {
        let play = Play::new(2);
        play.says(0, "block");
        play.entered(0, "block").await;
        play
    });
    threads.shutdown_background();
    // Whether or not another task has gone on with the worker by then.
    runtime().block_on(async {
        until("the end", || play.recorder().iter().all(Option::is_some)).await;
        assert!(play.worker().is_dead());
        assert_eq!(play.stage.state().returned_count, 0);
        play.opens();
        play.returned(1).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_panics_costs_its_worker() {
    let play = Play::new(2);
    play.says(0, "panic");
    until("the end of both", || play.recorder().iter().all(Option::is_some)).await;
    assert!(play.worker().is_dead());
}

/// A send's completion lets a task go on, and a handler of the same turn blocks until it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_woken_task_runs_while_a_handler_blocks() {
    let play = Play::new(1);
    let connection = Arc::clone(play.ends[0].connection());
    let slot = connection.worker.send_slots.try_take().unwrap();
    let permit = || Arc::clone(&connection.frames).try_acquire_owned();
    let frame = Outgoing::Frame {
        slot,
        len: HEADER_LEN,
        permit: FramePermit::new(permit().unwrap(), None),
    };
    connection.send(frame).unwrap();
    let _others: Vec<_> = std::iter::from_fn(|| permit().ok()).collect();
    let waits = tokio::spawn({
        let (frames, stage) = (Arc::clone(&connection.frames), Arc::clone(&play.stage));
        async move {
            let _permit = frames.acquire().await.unwrap();
            stage.change(|state| state.is_open = true);
        }
    });
    play.says(0, "keep");
    play.entered(0, "keep").await;
    let (_, sent) = play.ends[0].sends()[0];
    play.rig.sim.complete(RawCompletion {
        work_id: sent.work_id,
        queue_pair_number: play.ends[0].number,
        ..Default::default()
    });
    play.says(0, "block");
    play.stage.change(|state| state.is_let_in = true);
    waits.await.unwrap();
    play.returned(1).await;
}

#[tokio::test]
async fn an_offer_that_is_taken_back_in_the_same_turn_is_not_pulled() {
    let rig = Rig::new();
    let (end, recorder) = rig.open();
    frame_arrives(&end, &recorder, b"before").await;
    end.offer(5, &[100_000], 100_000);
    end.say(MessageKind::Cancel { transfer: 5 }, &[]);
    until("the end of the offer", || !recorder.withheld.lock().is_empty()).await;
    assert_eq!(*recorder.withheld.lock(), [Withheld::GivenUp]);
    assert!(end.sends().iter().all(|(kind, _)| *kind != WorkKind::Read));
    assert_eq!(rig.upgrade.lanes()[0].cancellations.pulls_stopped, 1);
}
