//! The thread that looks for user code which blocks, one for the process.
//!
//! It is a thread and no task, since the threads that run tasks are those that may be blocked. It
//! is started by the first handler of a runtime with several threads, and sleeps while no handler
//! runs, so that an idle process is not woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::pace::{Activity, Pace, Sight, Step, compare};
use super::worker_slot::WorkerSlot;

/// Between two looks. User code that is found in the same turn by two looks blocks: it has run for
/// one to two ticks.
///
/// Ten times the few milliseconds for which the kernel's scheduler takes the core from a thread
/// that others compete with, so that a thread which waits for a core is rarely taken for a blocked
/// one; and a thousandth of the default `keepalive.timeout`.
pub(super) const TICK: Duration = Duration::from_millis(20);

static MONITOR: Monitor = Monitor {
    is_awake: AtomicBool::new(false),
    slots: Mutex::new(Vec::new()),
    thread: OnceLock::new(),
};

struct Monitor {
    /// Whether it looks by itself, and need not be woken.
    is_awake: AtomicBool,
    slots: Mutex<Vec<Observed>>,
    /// `None` when the system gave no thread.
    thread: OnceLock<Option<Thread>>,
}

/// A thread's slot, and its turn at the last look.
struct Observed {
    slot: Arc<WorkerSlot>,
    turn: u64,
}

/// Makes a slot that the monitor looks at for as long as its thread lives.
pub(super) fn register() -> Arc<WorkerSlot> {
    let slot = Arc::<WorkerSlot>::default();
    MONITOR.slots().push(Observed { slot: Arc::clone(&slot), turn: slot.turn() });
    slot
}

/// Makes sure that the monitor looks. Most often that is one relaxed load.
pub(super) fn wake() {
    if !MONITOR.is_awake.load(Ordering::Relaxed) {
        MONITOR.wake();
    }
}

impl Monitor {
    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<Observed>> {
        // Every entry is whole between any two statements.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn wake(&'static self) {
        if self.is_awake.swap(true, Ordering::Relaxed) {
            return;
        }
        let thread = self.thread.get_or_init(|| {
            let builder = thread::Builder::new().name("farcall-monitor".into());
            match builder.spawn(|| self.run()) {
                Ok(thread) => Some(thread.thread().clone()),
                Err(error) => {
                    tracing::warn!(
                        target: "farcall::server",
                        %error,
                        "no thread to look for handlers that block: they hold up their connections"
                    );
                    None
                }
            }
        });
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    fn run(&self) {
        let mut pace = Pace::default();
        loop {
            thread::sleep(TICK);
            match pace.handle_look(self.look()) {
                Step::Tick => self.is_awake.store(true, Ordering::Relaxed),
                Step::Drowse => self.is_awake.store(false, Ordering::Relaxed),
                Step::Sleep => {
                    // An `unpark` that comes before `park` leaves a token; the loop absorbs
                    // spurious ones.
                    while !self.is_awake.load(Ordering::Relaxed) {
                        thread::park();
                    }
                }
            }
        }
    }

    /// Looks at every thread, and lets the drivers go on that are stuck.
    fn look(&self) -> Activity {
        let (mut activity, mut stuck, mut yielding) = (Activity::None, Vec::new(), Vec::new());
        self.slots().retain_mut(|observed| {
            let turn = observed.slot.turn();
            match compare(observed.turn, turn) {
                Sight::Idle => {}
                Sight::Moving => activity = Activity::Some,
                Sight::Stuck => {
                    stuck.extend(observed.slot.take_in(turn));
                    yielding.append(&mut observed.slot.take_yielding());
                }
            }
            observed.turn = turn;
            // The thread holds the other handle until it ends.
            Arc::strong_count(&observed.slot) > 1
        });
        // The lock of `slots` is released before wakers and drivers run tokio's code.
        yielding.into_iter().for_each(|(_, waker)| waker.wake());
        for driver in stuck {
            let runtime = driver.runtime().clone();
            // A runtime that has ended drops the driver here, which ends its calls in the runtime.
            let _inside = runtime.enter();
            drop(runtime.spawn(driver.resume()));
        }
        activity
    }
}
