//! The budgets of instructions: calls over RDMA in the virtual machine, where time counts
//! instructions.
//!
//! The budgets themselves stand in `benches/src/rdma/budget.rs`.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::batch::Job;
use crate::kernel::Series;
use crate::rdma_place::BOOT_LIMIT;
use crate::vm::{self, INSTRUCTION_NANOS, VmEnd, VmOptions};

/// What is built for it.
pub(crate) const PROGRAMS: &[crate::rdma_programs::RdmaProgram] = &[crate::bench_rdma::DRIVER];

/// The kernel that the budgets were measured on.
pub(crate) const KERNEL: Series = Series::V6_1;

/// Several times what counting takes.
const LIMIT: Duration = Duration::from_secs(300);

/// Counts with the driver of `job`.
///
/// # Errors
///
/// When a budget is exceeded, or the virtual machine fails.
pub(crate) fn run(job: &Job) -> Result<()> {
    let nanos = INSTRUCTION_NANOS.to_string();
    let words = ["budgets".into(), "--instruction-nanos".into(), nanos.into()];
    let command = [job.program.clone().into()].into_iter().chain(words).collect();
    let mut options = VmOptions::for_command(command, KERNEL, BOOT_LIMIT + LIMIT);
    options.icount = true;
    match vm::run(&options)? {
        VmEnd::Exited(0) => Ok(()),
        VmEnd::Exited(_) => bail!("calls take more instructions than they may, see above"),
        VmEnd::Expired | VmEnd::NoStatus => bail!("the virtual machine failed, see above"),
    }
}
