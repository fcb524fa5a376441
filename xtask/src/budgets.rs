//! Counts instead of times: on this host the cost of a call over TCP and over simulated devices; in
//! the virtual machine, where time counts instructions, the cost of a call over RDMA and the cost
//! that greedy clients cause each other.
//!
//! The budgets themselves stand in `benches/src/host_budgets.rs` and
//! `benches/src/rdma/budget.rs`.

use anyhow::{Result, bail};

use crate::batch::{self, Job};
use crate::kernel::Series;
use crate::rdma_place::BOOT_LIMIT;
use crate::rdma_programs::{RdmaProgram, Target};
use crate::vm::{self, INSTRUCTION_NANOS, VmEnd, VmOptions};

/// Counts on this host.
pub(crate) const ON_HOST: &[RdmaProgram] = &[RdmaProgram {
    package: "farcall-benches",
    target: Target::Measured("farcall-bench"),
    arguments: &["host-budgets"],
    // Under valgrind it takes half a minute.
    limit_seconds: 900,
}];

/// Counts on this host.
///
/// # Errors
///
/// Returns an error if the program cannot be built, or a budget is exceeded.
pub(crate) fn run_on_host() -> Result<()> {
    let jobs = ON_HOST.iter().map(|program| program.build(&Default::default()));
    batch::run(&jobs.collect::<Result<Vec<_>>>()?.concat())
}

/// Programs built for the virtual machine.
pub(crate) const PROGRAMS: &[RdmaProgram] = &[DRIVER, GREED];

/// Counts the instructions of calls.
const DRIVER: RdmaProgram = RdmaProgram {
    package: "farcall-benches",
    target: Target::Measured("farcall-bench"),
    arguments: &[],
    limit_seconds: 900,
};

/// Eight clients on one receive queue, which here are measured without a clock.
const GREED: RdmaProgram = RdmaProgram {
    package: "farcall-suite",
    target: Target::Test("rdma_path"),
    arguments: &["--nocapture", "eight_greedy"],
    limit_seconds: 300,
};

/// The least that eight of them may get done, as a part of what the best number of clients does,
/// and the calls of one measurement: so many that their beginning and end weigh little.
const GREED_VARIABLES: [(&str, &str); 2] =
    [("FARCALL_GREED_GOODPUT_MIN", "0.85"), ("FARCALL_GREED_CALLS", "2000")];

/// The kernel that the budgets were measured on.
pub(crate) const KERNEL: Series = Series::V6_1;

/// Counts with the driver, and then has greedy clients.
///
/// # Errors
///
/// Returns an error if a budget is exceeded, greedy clients do too little, or the virtual machine
/// fails.
pub(crate) fn run(jobs: &[Job]) -> Result<()> {
    let [mut driver, mut greed] = <[Job; 2]>::try_from(jobs.to_vec()).map_err(|jobs| {
        anyhow::anyhow!("expected two programs, but the build produced {}", jobs.len())
    })?;
    let nanos = INSTRUCTION_NANOS.to_string();
    driver.arguments = vec!["budgets".into(), "--instruction-nanos".into(), nanos];
    greed.variables.extend(GREED_VARIABLES.map(|(name, value)| (name.into(), value.into())));
    let jobs = [driver, greed];
    let folder = tempfile::Builder::new().prefix("farcall-budgets-").tempdir()?;
    let command = batch::write(&jobs, &folder.path().join("jobs.json"))?;
    let limit = BOOT_LIMIT + batch::limit(&jobs);
    let mut options = VmOptions::for_command(command, KERNEL, limit);
    options.icount = true;
    match vm::run(&options)? {
        VmEnd::Exited(0) => Ok(()),
        VmEnd::Exited(_) => bail!("calls exceed their budgets of instructions, see above"),
        VmEnd::Expired | VmEnd::NoStatus => bail!("the virtual machine failed, see above"),
    }
}
