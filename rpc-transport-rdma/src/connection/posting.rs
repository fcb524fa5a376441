//! A connection posts once for all completions that the worker handles at a time, as `batching`
//! decides.

use std::sync::Arc;

use super::{Connection, Life};
use crate::connection::batching::{BatchEnd, Batching};

impl Connection {
    /// Holds back posting until [`Connection::end_batch`], for the worker's task.
    pub(crate) fn begin_batch(&self) {
        if let Life::Alive(live) = &mut *self.life() {
            live.batching = Batching::Handling { frame_count: 0 };
        }
    }

    /// Keeps batching if several frames came and none is queued: the tasks that waited for them are
    /// about to run, and what they send next can go out in one post. Posts what was held back
    /// otherwise. For the worker's task.
    pub(crate) fn hold_or_post(self: &Arc<Self>) -> BatchEnd {
        let held = self.with_live(|live, _| live.batching.hold(live.state.outgoing_len()));
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
        let ended = self.with_live(|live, _| live.batching = Batching::Off);
        ended.is_err() && self.is_drained()
    }

    /// Returns true if the queue pairs are halted and nothing is in flight. For the worker's task.
    pub(crate) fn is_drained(&self) -> bool {
        match &*self.life() {
            Life::Alive(live) => live.queues.is_drained(),
            Life::Ended(_) => false,
        }
    }

    /// Describes the last work requests. The flag is set if they were reported.
    #[cfg(test)]
    pub(crate) fn describe_requests(&self) -> Option<(String, bool)> {
        match &mut *self.life() {
            Life::Alive(live) => Some(live.queues.describe_requests()),
            Life::Ended(_) => None,
        }
    }

    /// Returns true if posting is held back.
    #[cfg(test)]
    pub(crate) fn is_batching(&self) -> bool {
        matches!(&*self.life(), Life::Alive(live) if !matches!(live.batching, Batching::Off))
    }
}
