//! Commands of a simulated device that take their time.
//!
//! Memory that is being registered counts as pinned already, which is when others meet the limit.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

/// No test waits longer than this for a command to be held.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A gate that commands of a device pass, or wait at.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    opened: Notify,
    /// Notified when a thread blocks.
    blocked: Notify,
}

#[derive(Debug, Default)]
struct GateState {
    hold_count: usize,
    held_count: usize,
    blocked_threads: usize,
}

/// Holds commands of a simulated device until this is dropped.
///
/// [`SimDevice::hang_firmware`](super::SimDevice::hang_firmware) holds all of them.
#[derive(Debug)]
#[must_use = "dropped, it holds nothing"]
pub struct SimHold {
    gate: Arc<Gate>,
}

impl Gate {
    /// Passes, or blocks the thread until no [`SimHold`] is left. Returns false if that takes
    /// longer than `timeout`.
    pub(crate) fn pass(&self, timeout: Duration) -> bool {
        let held = Held::new(self);
        let is_held = |state: &mut GateState| state.hold_count > 0;
        let mut state = self.state();
        state.blocked_threads += 1;
        if is_held(&mut state) {
            self.blocked.notify_waiters();
        }
        self.changed.wait_while_for(&mut state, is_held, timeout);
        state.blocked_threads -= 1;
        // Not what the wait says: it may be over just when the last hold is gone.
        let passes = !is_held(&mut state);
        // The count takes the lock.
        drop((state, held));
        passes
    }

    /// Passes like [`Gate::pass`], without blocking the thread.
    pub(crate) async fn passed(&self) {
        let _held = Held::new(self);
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            // Before looking, so that no opening in between is missed.
            opened.as_mut().enable();
            if self.state().hold_count == 0 {
                return;
            }
            opened.await;
        }
    }

    /// Waits until the gate blocks a thread.
    async fn blocked(&self) {
        loop {
            let mut blocked = std::pin::pin!(self.blocked.notified());
            blocked.as_mut().enable();
            if self.state().blocked_threads > 0 {
                return;
            }
            blocked.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock()
    }
}

/// A command at the gate.
struct Held<'a>(&'a Gate);

impl<'a> Held<'a> {
    fn new(gate: &'a Gate) -> Self {
        gate.state().held_count += 1;
        gate.changed.notify_all();
        Self(gate)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state().held_count -= 1;
    }
}

impl SimHold {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        gate.state().hold_count += 1;
        Self { gate }
    }

    /// Blocks until `count` commands are held at once.
    ///
    /// # Panics
    ///
    /// Panics if they are not within half a minute.
    pub fn wait_for(&self, count: usize) {
        let is_less = |state: &mut GateState| state.held_count < count;
        let mut state = self.gate.state();
        self.gate.changed.wait_while_for(&mut state, is_less, WAIT_MAX);
        assert!(state.held_count >= count, "{} of {count} commands are held", state.held_count);
    }

    /// Waits until a thread is blocked.
    pub(crate) async fn blocked(&self) {
        self.gate.blocked().await;
    }
}

impl Drop for SimHold {
    fn drop(&mut self) {
        self.gate.state().hold_count -= 1;
        self.gate.changed.notify_all();
        self.gate.opened.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hold_tells_of_a_thread_that_it_blocks() {
        let gate = Arc::<Gate>::default();
        let hold = SimHold::new(Arc::clone(&gate));
        let context = &mut Context::from_waker(Waker::noop());
        let mut passed = pin!(gate.passed());
        assert!(passed.as_mut().poll(context).is_pending());
        assert!(pin!(hold.blocked()).poll(context).is_pending(), "a command blocks no thread");
        let its = Arc::clone(&gate);
        let blocked = tokio::task::spawn_blocking(move || its.pass(WAIT_MAX));
        // The clock stands still, so that a sleep here would last as long as the thread waits.
        hold.blocked().await;
        drop(hold);
        assert!(blocked.await.unwrap(), "it passes");
        passed.await;
    }
}
