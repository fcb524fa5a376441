//! The counters of cancelled transfers of a worker.

use rpc_core::transport::Counter;

use crate::CancellationStats;
use crate::proto::wire::AtsStatus;

/// The live counters behind [`CancellationStats`].
#[derive(Debug, Default)]
pub(crate) struct Cancellations {
    pub(crate) withdrawn: Counter,
    not_started: Counter,
    stopped: Counter,
    completed: Counter,
    pub(crate) revoked: Counter,
    pub(crate) overdue: Counter,
    pub(crate) pulls_stopped: Counter,
}

impl Cancellations {
    /// Counts the release of a frame that was withdrawn.
    pub(crate) fn count_answer(&self, outcome: AtsStatus) {
        let counter = match outcome {
            AtsStatus::Read => &self.completed,
            AtsStatus::Refused => &self.not_started,
            AtsStatus::Stopped => &self.stopped,
        };
        counter.add(1);
    }

    pub(crate) fn snapshot(&self) -> CancellationStats {
        CancellationStats {
            withdrawn: self.withdrawn.value(),
            not_started: self.not_started.value(),
            stopped: self.stopped.value(),
            completed: self.completed.value(),
            revoked: self.revoked.value(),
            overdue: self.overdue.value(),
            pulls_stopped: self.pulls_stopped.value(),
        }
    }
}
