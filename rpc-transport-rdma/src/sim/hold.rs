//! Registrations that take their time, as those of much memory do on real devices.
//!
//! What is being registered counts as pinned already, which is when others meet the limit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No test waits longer than this for a registration to begin.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A gate that registrations of a device pass, or wait at.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    hold_count: usize,
    held_count: usize,
}

/// Holds every registration with a simulated device, after its memory was pinned and before its
/// caller hears of it, until this is dropped. The calling thread is blocked meanwhile.
#[derive(Debug)]
pub struct SimHold {
    gate: Arc<Gate>,
}

impl Gate {
    /// Passes, or waits until no [`SimHold`] is left.
    pub(crate) fn pass(&self) {
        let mut state = self.state();
        state.held_count += 1;
        self.changed.notify_all();
        while state.hold_count > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held_count -= 1;
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        // Two counts are whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimHold {
    #[cfg(test)]
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        gate.state().hold_count += 1;
        Self { gate }
    }

    /// Blocks until `count` registrations are held.
    ///
    /// # Panics
    ///
    /// Panics if they are not within half a minute.
    pub fn wait_for(&self, count: usize) {
        let is_less = |state: &mut GateState| state.held_count < count;
        let waited = self.gate.changed.wait_timeout_while(self.gate.state(), WAIT_MAX, is_less);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} of {count} registrations are held", state.held_count);
    }
}

impl Drop for SimHold {
    fn drop(&mut self) {
        self.gate.state().hold_count -= 1;
        self.gate.changed.notify_all();
    }
}
