//! What became of transfers whose calls were given up, counted for a lane.

use rpc_core::transport::Counter;

use crate::message::Released;

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
    pub(crate) fn count_answer(&self, outcome: Released) {
        let counter = match outcome {
            Released::Read => &self.completed,
            Released::Refused => &self.not_started,
            Released::Stopped => &self.stopped,
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

/// What became of large frames whose calls were given up, since the lane began.
///
/// What was withdrawn and is not among the answers is in quarantine, or its connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CancellationStats {
    /// Frames that this side had offered and asked the peer to let go of.
    pub withdrawn: u64,
    /// Of those, the ones of which the peer had read nothing.
    pub not_started: u64,
    /// Of those, the ones that the peer stopped reading half-way.
    pub stopped: u64,
    /// Of those, the ones that the peer had read whole by then.
    pub completed: u64,
    /// Of those, the ones that the peer did not release in time and whose keys were revoked
    /// instead.
    pub revoked: u64,
    /// Of those, the ones that the peer did not release in time, at the cost of the connection.
    pub overdue: u64,
    /// Frames that this side was reading or about to read and stopped.
    pub pulls_stopped: u64,
}
