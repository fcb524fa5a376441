//! The monitor: a thread that lets drivers go on elsewhere while user code blocks theirs.
//!
//! It knows of user code that farcall runs. Any other task of the application may block a thread,
//! too: what has yielded there for a tick is woken, and another thread runs it.
//!
//! `Pace` says when it looks, and what it concludes from two looks. It is free of clocks and
//! threads:
//!
//! ```text
//!      a handler ran or a task yielded      LINGER_TICKS without
//!   ┌─────────────────────────────────> awake ──────────────────> drowsy ──a quiet tick──> asleep
//!   │                                     ^                          │                        │
//!   └─────────────────────────────────────┴──────── either ──────────┴────────────────────────┘
//! ```
//! Threads wake a monitor that has said that it sleeps. They look at its word without a fence, so
//! a thread that begins at that very moment may still read the old word. The drowsy tick is for
//! that thread: its turn is visible long before the tick ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::slot::{Resume, WorkerSlot, YieldEntry};

/// Between two looks. User code that is found in the same turn by two looks blocks: it has run for
/// one to two ticks.
///
/// Ten times the few milliseconds for which the kernel's scheduler takes the core from a thread
/// that others compete with, so that a thread which waits for a core is rarely taken for a blocked
/// one; and a thousandth of the default `keepalive.timeout`.
const TICK: Duration = Duration::from_millis(20);

static MONITOR: Monitor = Monitor {
    is_awake: AtomicBool::new(false),
    slots: Mutex::new(Vec::new()),
    thread: OnceLock::new(),
};

/// The ticks that the monitor goes on for after the last handler or yield, so that calls which
/// follow each other within a fifth of a second do not wake a thread each.
const LINGER_TICKS: u32 = 10;

thread_local! {
    static SLOT: Arc<WorkerSlot> = register();
}

struct Monitor {
    /// True while it checks by itself, and need not be woken.
    is_awake: AtomicBool,
    slots: Mutex<Vec<Observed>>,
    /// `None` when the system gave no thread.
    thread: OnceLock<Option<Thread>>,
}

/// A thread's slot, and its turn and latest yield at the last look.
struct Observed {
    slot: Arc<WorkerSlot>,
    turn: u64,
    last_yield_id: u64,
}

impl Monitor {
    fn slots(&self) -> parking_lot::MutexGuard<'_, Vec<Observed>> {
        self.slots.lock()
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
                        "cannot start the thread that detects blocking handlers, which stall \
                         their connections"
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
        let (mut activity, mut stuck, mut overdue) = (Activity::None, Vec::new(), Vec::new());
        self.slots().retain_mut(|observed| {
            let turn = observed.slot.turn();
            match compare(observed.turn, turn) {
                Sight::Idle => {}
                Sight::Moving => activity = Activity::Some,
                Sight::Stuck => stuck.extend(observed.slot.take_in(turn)),
            }
            observed.turn = turn;
            let (last_yield_id, tasks) = observed.slot.take_overdue(observed.last_yield_id);
            if last_yield_id != observed.last_yield_id {
                activity = Activity::Some;
            }
            observed.last_yield_id = last_yield_id;
            overdue.extend(tasks);
            // The thread holds the other handle until it ends.
            Arc::strong_count(&observed.slot) > 1
        });
        // The lock of `slots` is released before wakers and drivers run tokio's code.
        overdue.into_iter().for_each(Waker::wake);
        for driver in stuck {
            let runtime = driver.runtime().clone();
            // A runtime that has ended drops the driver here, which ends its calls in the runtime.
            let _inside = runtime.enter();
            drop(runtime.spawn(driver.resume()));
        }
        activity
    }
}

/// A worker's state, from its turn at two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// It has run no user code since the last look, and runs none.
    Idle,
    /// It has run user code since the last look.
    Moving,
    /// It is in the same turn of user code as at the last look.
    Stuck,
}

/// The next step of the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Looks again after a tick.
    Tick,
    /// Says that it sleeps, and looks once more after a tick.
    Drowse,
    /// Sleeps until a thread wakes it.
    Sleep,
}

/// The monitor's remaining time.
#[derive(Debug, Default)]
pub(super) struct Pace {
    quiet_ticks: u32,
}

impl Pace {
    /// Concludes from a look, during which some worker was moving or none.
    fn handle_look(&mut self, activity: Activity) -> Step {
        if activity == Activity::Some {
            self.quiet_ticks = 0;
            return Step::Tick;
        }
        self.quiet_ticks += 1;
        match self.quiet_ticks {
            ..LINGER_TICKS => Step::Tick,
            LINGER_TICKS => Step::Drowse,
            _ => {
                self.quiet_ticks = 0;
                Step::Sleep
            }
        }
    }
}

/// The finding of a check: user code has begun since the last, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    None,
    Some,
}

/// Makes a slot that the monitor looks at for as long as its thread lives.
fn register() -> Arc<WorkerSlot> {
    let slot = Arc::<WorkerSlot>::default();
    let observed = Observed { slot: Arc::clone(&slot), turn: slot.turn(), last_yield_id: 0 };
    MONITOR.slots().push(observed);
    slot
}

/// Makes sure that the monitor looks. Most often that is one relaxed load.
pub(super) fn wake() {
    if !MONITOR.is_awake.load(Ordering::Relaxed) {
        MONITOR.wake();
    }
}

/// Compares a worker's turn, which is odd while user code runs, with that of the last look.
fn compare(last: u64, turn: u64) -> Sight {
    match (turn == last, turn % 2 == 1) {
        (false, _) => Sight::Moving,
        (true, true) => Sight::Stuck,
        (true, false) => Sight::Idle,
    }
}

/// Puts a driver into the slot of this thread; gives it back if the slot is in use.
pub(super) fn put(driver: Box<dyn Resume>) -> Result<(), Box<dyn Resume>> {
    let mut driver = Some(driver);
    let put = |slot: &Arc<WorkerSlot>| driver.take().map_or(Ok(()), |driver| slot.put(driver));
    // A thread that ends has no slot any more.
    if let Ok(put) = SLOT.try_with(put) {
        put?;
        wake();
    }
    driver.map_or(Ok(()), Err)
}

/// Records that a task has yielded on this thread; `None` on a thread that ends.
pub(super) fn enter_yielding(waker: &Waker) -> Option<YieldEntry> {
    let entry = SLOT.try_with(|slot| slot.enter_yielding(waker)).ok();
    wake();
    entry
}

/// Empties the slot of this thread; `None` when the monitor has taken the driver.
pub(super) fn take() -> Option<Box<dyn Resume>> {
    SLOT.try_with(|slot| slot.take()).ok().flatten()
}

/// Returns the number of tasks that have yielded on this thread.
#[cfg(test)]
pub(super) fn yielding_count() -> usize {
    SLOT.with(|slot| slot.yielding_count())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_code_that_lasts_from_one_look_to_the_next_is_stuck() {
        assert_eq!(compare(0, 0), Sight::Idle);
        assert_eq!(compare(0, 1), Sight::Moving);
        assert_eq!(compare(1, 1), Sight::Stuck);
        assert_eq!(compare(1, 2), Sight::Moving);
        assert_eq!(compare(1, 3), Sight::Moving);
        assert_eq!(compare(u64::MAX, 0), Sight::Moving);
    }

    proptest! {
        /// Whatever came before, it sleeps after so many quiet looks and not earlier, and it has
        /// said so one look before.
        #[test]
        fn it_sleeps_after_it_has_said_so(before in prop::collection::vec(any::<bool>(), 0..50)) {
            let mut pace = Pace::default();
            for is_active in before {
                let activity = if is_active { Activity::Some } else { Activity::None };
                let step = pace.handle_look(activity);
                prop_assert!(!is_active || step == Step::Tick);
            }
            let _ = pace.handle_look(Activity::Some);
            for _ in 1..LINGER_TICKS {
                prop_assert_eq!(pace.handle_look(Activity::None), Step::Tick);
            }
            prop_assert_eq!(pace.handle_look(Activity::None), Step::Drowse);
            prop_assert_eq!(pace.handle_look(Activity::None), Step::Sleep);
        }
    }
}
