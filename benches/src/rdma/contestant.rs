//! The contestants of a measurement: a tool, or calls of farcall.

use std::collections::BTreeMap;

use anyhow::Result;

/// A contestant's numbers by name: `p50_us`, `mb_per_s`, `calls_per_s` and others. Numbers that are
/// compared have the same name for all.
pub(super) type Values = BTreeMap<String, f64>;

/// A contestant that can be measured repeatedly.
pub(super) trait Contestant {
    /// Returns the name in results.
    fn name(&self) -> &str;

    /// Measures it once.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be.
    fn measure(&mut self) -> Result<Values>;
}
