//! Reports from handlers to a test, and the gate at which handlers wait for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Maximum time for which a handler blocks its thread after its test has failed: longer than any
/// test.
const BLOCK_LIMIT: Duration = Duration::from_secs(120);

/// Something that a handler that reports did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEvent {
    /// It began.
    Entered(u64),
    /// It ended with an answer.
    Answered(u64),
    /// It was dropped while it waited.
    Dropped(u64),
}

/// The test's end.
#[derive(Debug)]
pub struct Watch {
    events: UnboundedReceiver<WatchEvent>,
    gate: Arc<Semaphore>,
    thread_gate: Arc<ThreadGate>,
}

/// Behind which handlers block their threads.
#[derive(Debug, Default)]
struct ThreadGate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl ThreadGate {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn block(&self) {
        // Late, it goes on.
        self.opened.wait_while_for(&mut self.is_open.lock(), |is_open| !*is_open, BLOCK_LIMIT);
    }
}

/// A test that has ended leaves no thread blocked.
impl Drop for Watch {
    fn drop(&mut self) {
        self.thread_gate.open();
    }
}

/// The handlers' end.
#[derive(Debug, Clone)]
pub struct Reporter {
    events: UnboundedSender<WatchEvent>,
    gate: Arc<Semaphore>,
    thread_gate: Arc<ThreadGate>,
}

/// A handler that reports how it is left: when this is dropped, unless it has answered.
#[derive(Debug)]
pub struct Entered {
    events: UnboundedSender<WatchEvent>,
    tag: u64,
    left: WatchEvent,
}

impl Entered {
    /// The handler has come to its answer.
    pub fn answer(mut self) {
        self.left = WatchEvent::Answered(self.tag);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The test may have looked away.
        let _ = self.events.send(self.left);
    }
}

/// Both ends.
pub fn pair() -> (Reporter, Watch) {
    let (sender, events) = mpsc::unbounded_channel();
    let (gate, thread_gate) = (Arc::new(Semaphore::new(0)), Arc::<ThreadGate>::default());
    let reporter =
        Reporter { events: sender, gate: Arc::clone(&gate), thread_gate: Arc::clone(&thread_gate) };
    (reporter, Watch { events, gate, thread_gate })
}

impl Watch {
    /// The next event; `None` when no handler can report any more.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no event is lost.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }

    /// An event that has been reported already.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.events.try_recv().ok()
    }

    /// Lets `count` waiting handlers go on, those that come later included.
    pub fn open(&self, count: usize) {
        self.gate.add_permits(count);
    }

    /// Lets handlers go on that block their threads, those that come later included.
    pub fn unblock(&self) {
        self.thread_gate.open();
    }
}

impl Reporter {
    /// Reports that a handler begins.
    pub fn enter(&self, tag: u64) -> Entered {
        // The test may have looked away.
        let _ = self.events.send(WatchEvent::Entered(tag));
        Entered { events: self.events.clone(), tag, left: WatchEvent::Dropped(tag) }
    }

    /// Blocks the thread until the gate for that opens, and reports begin and end.
    pub fn block(&self, tag: u64) {
        let entered = self.enter(tag);
        self.thread_gate.block();
        entered.answer();
    }

    /// Waits until the gate opens, and reports begin and end.
    pub async fn park(&self, tag: u64) {
        let entered = self.enter(tag);
        // The gate is never closed: an error would mean the same as being let through.
        if let Ok(permit) = self.gate.acquire().await {
            permit.forget();
        }
        entered.answer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_handler_is_told_apart_from_one_that_answered() {
        let (reporter, mut watch) = pair();
        {
            let mut parked = Box::pin(reporter.park(1));
            assert!(futures::poll!(&mut parked).is_pending());
        }
        watch.open(1);
        reporter.park(2).await;
        let mut events = Vec::new();
        while let Some(event) = watch.try_next() {
            events.push(event);
        }
        let expected = [
            WatchEvent::Entered(1),
            WatchEvent::Dropped(1),
            WatchEvent::Entered(2),
            WatchEvent::Answered(2),
        ];
        assert_eq!(events, expected);
    }
}
