//! A driver that is nothing but a token: who has it, and when.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::*;

/// Far more than the monitor takes on any machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Says when another task has it.
struct Token {
    runtime: Handle,
    resumed: Sender<()>,
    /// Is gone with the token.
    life: Arc<()>,
}

impl Token {
    fn new() -> (Box<Self>, Receiver<()>, Weak<()>) {
        let ((resumed, is_resumed), life) = (mpsc::channel(), Arc::new(()));
        let weak = Arc::downgrade(&life);
        (Box::new(Self { runtime: Handle::current(), resumed, life }), is_resumed, weak)
    }
}

impl Resume for Token {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn resume(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            let _ = (self.resumed.send(()), &self.life);
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_goes_on_elsewhere_while_user_code_blocks() {
    let blocks = tokio::spawn(async {
        let (token, resumed, _) = Token::new();
        let mut handoff = Handoff::new(token, false);
        handoff.release();
        resumed.recv_timeout(LIMIT).expect("no task has gone on");
        assert!(handoff.reclaim());
        assert!(handoff.into_driver::<Token>().is_none());
    });
    blocks.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_comes_back_from_user_code_that_does_not_block() {
    let runs = tokio::spawn(async {
        let (mut token, resumed, _) = Token::new();
        for _ in 0..1000 {
            let mut handoff = Handoff::new(token, false);
            handoff.release();
            assert!(!handoff.reclaim());
            token = handoff.into_driver().expect("it was not taken");
        }
        assert!(resumed.try_recv().is_err());
    });
    runs.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn each_delivery_that_blocks_is_stood_in_for() {
    let block = || async {
        let (token, resumed, life) = Token::new();
        let mut handoff = Handoff::new(token, false);
        handoff.release();
        resumed.recv_timeout(LIMIT).expect("no task has gone on");
        assert!(handoff.into_driver::<Token>().is_none());
        life
    };
    // Twice on each of two threads, with the monitor asleep before some of them.
    for _ in 0..2 {
        let [one, other] = [tokio::spawn(block()), tokio::spawn(block())];
        one.await.unwrap();
        other.await.unwrap();
    }
}

#[tokio::test]
async fn on_a_runtime_of_one_thread_the_driver_is_kept() {
    let (token, resumed, _) = Token::new();
    let mut handoff = Handoff::new(token, true);
    handoff.release();
    assert!(!handoff.reclaim());
    // Nothing was displaced either, since nothing can be stolen.
    assert!(handoff.has_woken());
    assert!(handoff.into_driver::<Token>().is_some());
    assert!(resumed.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_user_code_drops_the_driver() {
    let panics = tokio::spawn(async {
        let (token, _resumed, life) = Token::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut handoff = Handoff::new(token, false);
            handoff.release();
            // As `panic!`, without a backtrace among the output of the tests.
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(panicked.is_err());
        assert!(life.upgrade().is_none(), "no task has the driver");
    });
    panics.await.unwrap();
}

/// The task that a delivery has woken runs on another thread while a later delivery blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_woken_before_user_code_blocks_is_not_stranded() {
    let (wake, (has_run, runs)) = (Arc::new(Notify::new()), mpsc::channel());
    let woken = tokio::spawn({
        let wake = Arc::clone(&wake);
        async move {
            wake.notified().await;
            has_run.send(()).unwrap();
        }
    });
    let blocks = tokio::spawn(async move {
        let (token, _resumed, _) = Token::new();
        let mut handoff = Handoff::new(token, false);
        wake.notify_one();
        handoff.woke();
        handoff.release();
        runs.recv_timeout(LIMIT).expect("the woken task did not run");
        assert!(!handoff.has_woken());
    });
    blocks.await.unwrap();
    woken.await.unwrap();
}

/// Its thread is blocked by a task of the application that farcall knows nothing of. No other
/// thread looks for it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_yields_before_another_blocks_goes_on_elsewhere() {
    let (wake, (has_run, runs)) = (Arc::new(Notify::new()), mpsc::channel());
    let (waits, is_waiting) = futures::channel::oneshot::channel();
    let blocks = tokio::spawn({
        let wake = Arc::clone(&wake);
        async move {
            waits.send(()).unwrap();
            wake.notified().await;
            runs.recv_timeout(LIMIT).expect("the task that yielded did not run");
        }
    });
    is_waiting.await.unwrap();
    let yields = tokio::spawn(async move {
        // The task that blocks is the next one on this thread.
        wake.notify_one();
        yield_now().await;
        has_run.send(()).unwrap();
    });
    blocks.await.unwrap();
    yields.await.unwrap();
}

#[tokio::test]
async fn a_task_that_has_yielded_leaves_the_list() {
    for _ in 0..3 {
        yield_now().await;
        let dropped = yield_now();
        assert!(dropped.now_or_never().is_none());
    }
    assert!(monitor::yielding_count() == 0, "of this thread");
}
