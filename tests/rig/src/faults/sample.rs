//! An observed call.

use std::time::Instant;

use super::call::{CallEnd, Kind};
use super::column::Column;

/// A call that has ended, or has not within the bound on everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) column: Column,
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) end: CallEnd,
}

/// The time span of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) broken: Instant,
    pub(super) mended: Instant,
}
