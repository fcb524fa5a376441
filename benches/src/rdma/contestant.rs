//! What is measured in a contest: a tool, or calls of ours.

use std::collections::BTreeMap;

use anyhow::Result;

/// What a contestant measured, by name: `p50_us`, `mb_per_s`, `calls_per_s` and others. What is
/// compared has the same name for all.
pub(super) type Values = BTreeMap<String, f64>;

/// What can be measured again and again.
pub(super) trait Contestant {
    /// What results call it.
    fn name(&self) -> &str;

    /// Measures it once.
    ///
    /// # Errors
    ///
    /// When it cannot be.
    fn measure(&mut self) -> Result<Values>;
}
