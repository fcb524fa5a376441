//! `cargo xtask demo`: the key-value demo over every transport, from a bare machine to its table.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bounded;
use crate::kernel::Series;
use crate::rdma_place::RdmaPlace;
use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};

/// The demo's arguments on this host, without RDMA.
const HOST_ARGUMENTS: &[&str] = &["inproc://kv", "tcp://127.0.0.1:0"];
const HOST_LIMIT: Duration = Duration::from_secs(120);

/// The demo with all its rows in one table, where the devices are: optimised, because it shows
/// times.
const PROGRAM: RdmaProgram = RdmaProgram { target: Target::Optimised("kv-demo"), ..AS_TESTED };

/// The same as tests are built, as one of the checks.
pub(crate) const AS_TESTED: RdmaProgram = RdmaProgram {
    package: "farcall-examples",
    target: Target::Bin { name: "kv-demo", test: "demo" },
    arguments: &[
        "inproc://kv",
        "tcp://127.0.0.1:0",
        "rdma://{server}:0",
        "auto://{server}:0",
        // Enough for a p99 of small values, in seconds where the processor is emulated.
        "--calls",
        "100",
    ],
    // Measured in emulation it takes under a minute; a busy machine may be several times slower.
    limit_seconds: 300,
};

/// Runs the demo: on this host over what needs no device, then over everything where there are RDMA
/// devices.
///
/// # Errors
///
/// When something it needs cannot be installed, or it fails.
pub(crate) fn run(kernel: Series) -> Result<()> {
    let place = RdmaPlace::find(kernel);
    place.announce();
    setup::ensure(&[&[Purpose::Build], place.purposes()].concat())?;
    let jobs = PROGRAM.build(&place.addresses())?;
    let demo = &jobs.first().context("the demo has no program")?.program;
    println!("=== on this host, without RDMA");
    bounded::run(Command::new(demo).args(HOST_ARGUMENTS), HOST_LIMIT)?;
    place.run(&jobs)
}
