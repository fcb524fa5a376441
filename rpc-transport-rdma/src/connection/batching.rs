//! Doorbell batching: a connection posts once for all completions that the worker handles at a
//! time.

use std::sync::Arc;

use super::{Connection, Life};

/// What became of a connection whose completions are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchEnd {
    /// It keeps batching until the callers that it has woken have run.
    Held,
    /// What it had to send is posted, as far as it may be.
    Posted,
    /// Its queue pairs are halted, and nothing is in flight.
    Drained,
}

impl Connection {
    /// Holds back posting until [`Connection::end_batch`], for the worker's task.
    pub(crate) fn begin_batch(&self) {
        if let Life::Alive(state) = &mut *self.life() {
            state.begin_batch();
        }
    }

    /// Keeps batching if several frames came and none is queued: the tasks that waited for them are
    /// about to run, and what they send next can go out in one post. Posts what was held back
    /// otherwise. For the worker's task.
    pub(crate) fn hold_or_post(self: &Arc<Self>) -> BatchEnd {
        let held = self.with_state(|state| {
            let is_held = state.hold();
            state.is_batching = is_held;
            Ok(is_held)
        });
        match held {
            Ok(true) => BatchEnd::Held,
            Ok(false) => BatchEnd::Posted,
            // A connection that has failed posts nothing, and has said why already.
            Err(_) if self.is_drained() => BatchEnd::Drained,
            Err(_) => BatchEnd::Posted,
        }
    }

    /// Posts everything that was held back; whether the queue pairs are halted and nothing is in
    /// flight. For the worker's task.
    pub(crate) fn end_batch(self: &Arc<Self>) -> bool {
        let ended = self.with_state(|state| {
            state.is_batching = false;
            Ok(())
        });
        ended.is_err() && self.is_drained()
    }

    /// Whether the queue pairs are halted and nothing is in flight. For the worker's task.
    pub(crate) fn is_drained(&self) -> bool {
        match &*self.life() {
            Life::Alive(state) => state.is_drained(),
            Life::Ended(_) => false,
        }
    }
}
