//! `cargo xtask demo`: the key-value demo over every transport, from a bare machine to its tables.
//!
//! The first table needs cargo and a linker alone. What the virtual machine needs is installed
//! after it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use crate::batch::Job;
use crate::kernel::{Kernel, Series};
use crate::phase::ProgressPhase;
use crate::rdma_place::RdmaPlace;
use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};

/// The demo, with the features that it needs alone. Its arguments are those of the table over RDMA.
const DEMO: RdmaProgram = RdmaProgram {
    package: "farcall-demo",
    target: Target::Alone("kv-demo"),
    arguments: &["rdma://{server}:0", "auto://{server}:0", "--calls", "20"],
    // Emulated, the rows take half a minute on two quiet processors.
    limit_seconds: 600,
};

/// The arguments of the table on this host.
const HOST_ARGUMENTS: &[&str] =
    &["inproc://kv", "unix://@farcall-kv-demo", "tcp://127.0.0.1:0", "auto://127.0.0.1:0"];

/// The lengths of values over emulated devices: by SEND, by READ, and what takes many READs.
const EMULATED_ARGUMENTS: [&str; 3] = ["--emulated", "--sizes", "64,65536,1048576,16777216"];

const HOST_LIMIT: Duration = Duration::from_secs(120);

/// The usual times of the phases on two cores, with the crates downloaded.
const BUILD_USUALLY: Duration = Duration::from_secs(75);
const HOST_USUALLY: Duration = Duration::from_secs(5);
const INSTALL_USUALLY: Duration = Duration::from_secs(40);
const RDMA_USUALLY: Duration = Duration::from_secs(45);

/// The next steps for a newcomer.
const NEXT: &str = "
Next: copy hello world from README.md into a package of your own. If you have a tonic service,
docs/book/src/moving-from-tonic.md lists what changes.";

/// Runs the demo: on this host over what needs no device, then over RDMA devices, emulated ones
/// where this host has none. Where there can be none, it says so.
///
/// # Errors
///
/// Returns an error if the demo cannot be built, or fails.
pub(crate) fn run(kernel: Series) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    let place = RdmaPlace::find(kernel);
    ProgressPhase::announce("building the demo", BUILD_USUALLY);
    let job = DEMO.build(&place.addresses())?.pop().context("the demo has no program")?;
    ProgressPhase::announce("calling over the transports of this host", HOST_USUALLY);
    bounded::run(Command::new(&job.program).args(HOST_ARGUMENTS), HOST_LIMIT)?;
    println!();
    over_rdma(&place, job)?;
    println!("{NEXT}");
    Ok(())
}

/// Shows the rows over RDMA, or why there are none.
fn over_rdma(place: &RdmaPlace, mut job: Job) -> Result<()> {
    place.announce();
    if let RdmaPlace::Vm(kernel) = *place {
        if !setup::is_ready(place.purposes()) {
            ProgressPhase::announce("installing what the virtual machine needs", INSTALL_USUALLY);
        }
        let missing = setup::ensure_where_possible(place.purposes())?;
        if !missing.is_empty() {
            println!("No rows over RDMA: this host has no device, and the virtual machine lacks");
            missing.iter().for_each(|line| println!("    {line}"));
            return Ok(());
        }
        job.arguments.extend(EMULATED_ARGUMENTS.map(str::to_owned));
        Kernel::obtain(kernel)?;
        ProgressPhase::announce(
            "calling over RDMA in the virtual machine, with its boot",
            RDMA_USUALLY,
        );
    }
    place.run(&[job])
}
