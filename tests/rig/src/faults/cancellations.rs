//! The lanes' counters of large frames whose calls were cancelled.

use std::fmt;

use farcall::rdma::LaneInfo;
use serde::{Deserialize, Serialize};

/// The sums over lanes. What each means says `CancellationStats` of the RDMA crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Cancellations {
    pub(super) withdrawn: u64,
    pub(super) not_started: u64,
    pub(super) stopped: u64,
    pub(super) completed: u64,
    /// Each of these cost a connection.
    pub(super) overdue: u64,
    pub(super) pulls_stopped: u64,
}

impl Cancellations {
    pub(super) fn of(lanes: &[LaneInfo]) -> Self {
        let mut sum = Self::default();
        for counted in lanes.iter().map(|lane| &lane.cancellations) {
            sum.withdrawn += counted.withdrawn;
            sum.not_started += counted.not_started;
            sum.stopped += counted.stopped;
            sum.completed += counted.completed;
            sum.overdue += counted.overdue;
            sum.pulls_stopped += counted.pulls_stopped;
        }
        sum
    }
}

impl fmt::Display for Cancellations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { withdrawn, not_started, stopped, completed, overdue, pulls_stopped } = self;
        write!(
            f,
            "{withdrawn} frames taken back ({not_started} not begun, {stopped} stopped half-way, \
             {completed} read whole, {overdue} overdue), {pulls_stopped} reads stopped"
        )
    }
}
