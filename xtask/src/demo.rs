//! `cargo xtask demo`: the key-value demo over every transport, from a bare machine to its table.

use std::process::Command;
use std::time::Duration;

use crate::kernel::Series;
use crate::rdma_place::RdmaPlace;
use crate::rdma_programs::KV_DEMO;
use crate::setup::{self, Purpose};
use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

/// The demo's arguments on this host, without RDMA.
const HOST_ARGUMENTS: &[&str] = &["inproc://kv", "tcp://127.0.0.1:0"];
const HOST_LIMIT: Duration = Duration::from_secs(120);

/// The row that shows what `auto://` says on a host without a device.
const FALLBACK_ARGUMENT: &str = "auto://127.0.0.1:0";

/// Runs the demo: on this host over what needs no device, then over everything where there are RDMA
/// devices. Where there are none and cannot be any, it leaves these rows out and says so.
///
/// # Errors
///
/// When it cannot be built, or fails.
pub(crate) fn run(kernel: Series) -> Result<()> {
    let place = RdmaPlace::find(kernel);
    setup::ensure(&[Purpose::Build])?;
    let missing = setup::ensure_where_possible(place.purposes())?;
    if missing.is_empty() {
        place.announce();
    } else {
        eprintln!(
            "xtask: no RDMA device and no virtual machine here: the rows of RDMA are left out"
        );
    }
    let jobs = KV_DEMO.build(&place.addresses())?;
    let demo = &jobs.first().context("the demo has no program")?.program;
    println!("=== on this host, without RDMA");
    let mut on_host = Command::new(demo);
    on_host.args(HOST_ARGUMENTS);
    if missing.is_empty() {
        bounded::run(&mut on_host, HOST_LIMIT)?;
        return place.run(&jobs);
    }
    bounded::run(on_host.arg(FALLBACK_ARGUMENT), HOST_LIMIT)?;
    println!("=== left out: rdma:// and auto:// over RDMA, since the virtual machine lacks");
    missing.iter().for_each(|line| println!("    {line}"));
    Ok(())
}
