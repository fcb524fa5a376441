//! The effort of a measurement: rounds, and the length of each.

use crate::worker::Span;

/// The effort of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Rounds of each comparison.
    pub round_count: usize,
    /// The length of one measurement, in milliseconds.
    pub millis: u64,
    /// Set if every peer is measured, not only those that figures are ratios to.
    pub all_peers: bool,
}

impl Effort {
    /// Under five minutes for a group, on two cores.
    pub const QUICK: Self = Self { round_count: 7, millis: 300, all_peers: false };
    /// The same for RDMA in the virtual machine, where starting a tool takes longer than measuring
    /// with it: a look at where things stand, and no median to quote.
    pub const QUICK_RDMA: Self = Self { round_count: 3, ..Self::QUICK };
    /// A quarter of an hour.
    pub const USUAL: Self = Self { round_count: 9, millis: 1000, all_peers: false };
    /// More than an hour.
    pub const FULL: Self = Self { round_count: 15, millis: 2000, all_peers: true };

    /// The length of one measurement.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::Millis(self.millis)
    }

    /// Returns the calls that each side makes first and that do not count. Caches, pools and
    /// windows find their sizes in them.
    #[must_use]
    pub fn warm_up(&self) -> Span {
        Span::Millis(self.millis.div_ceil(2).max(100).min(self.millis * 10))
    }
}
