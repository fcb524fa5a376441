//! The figures R1 to R11: RDMA devices, on a host that has them or in the virtual machine.

use anyhow::{Result, bail};

use crate::driver::Bench;
use crate::figures::{Goal, Part};

/// Measures a figure of this group.
///
/// # Errors
///
/// When it cannot be measured.
pub fn measure(_: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    bail!("nothing here measures {}", goal.number)
}
