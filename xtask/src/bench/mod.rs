//! `cargo xtask bench`: the figures of the goals, from a bare machine to their table.
//!
//! What is measured and how is `farcall-bench`'s, in `benches`; here it is built and started.
//! `options` are the command's arguments and the driver's, `rdma` runs the driver where there are
//! devices.

mod options;
mod rdma;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::cargo;
use crate::setup::{self, Purpose};
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use farcall_testkit::process::bounded;
pub(crate) use options::BenchOptions;
use options::Group;

/// The driver.
const DRIVER: &str = "farcall-bench";

/// The manifest of the peers. They are a workspace of their own, so that no other build
/// compiles their dependencies.
pub(crate) const PEERS: &str = "benches/peers/Cargo.toml";

/// From nothing, with the peers' dependencies, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(2400);

/// The figures of many connections that need devices. The driver has them as a group of its own.
const SCALE_ON_DEVICES: (&str, &[&str]) = ("scale-rdma", &["C5", "C6", "C7"]);

/// Builds what measures and what is measured, and runs it, one group after the other.
///
/// # Errors
///
/// Returns an error if something it needs cannot be installed or built, or if a figure could not be
/// measured.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    let wanted = Group::value_variants().iter().filter(|group| options.wants(**group));
    for group in wanted {
        match group {
            Group::Tcp => tcp(options)?,
            Group::Rdma => rdma::run(options)?,
            Group::Scale => scale(options)?,
        }
    }
    Ok(())
}

/// The group that runs on this host.
fn tcp(options: &BenchOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build, Purpose::Bench])?;
    on_host(options, options.arguments(Group::Tcp))
}

/// Many connections: what needs no devices first.
fn scale(options: &BenchOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build, Purpose::Bench])?;
    let (group, on_devices) = SCALE_ON_DEVICES;
    let only = options.only_of(Group::Scale);
    let is_on_device = |number: &String| on_devices.contains(&number.to_uppercase().as_str());
    let (devices, host): (Vec<_>, Vec<_>) = only.iter().cloned().partition(is_on_device);
    if only.is_empty() || !host.is_empty() {
        let arguments = options.arguments_without_file(Group::Scale, &host);
        on_host(options, options.with_file(arguments))?;
    }
    if only.is_empty() || !devices.is_empty() {
        let mut arguments = options.arguments_of(group, &devices);
        let peers = peers()?;
        arguments.extend(["--peers".to_owned(), peers.display().to_string()]);
        rdma::measure(options, vec![arguments])?;
    }
    Ok(())
}

/// Runs the driver on this host.
fn on_host(options: &BenchOptions, mut arguments: Vec<String>) -> Result<()> {
    let driver = ["build", "--release", "--package", "farcall-benches"];
    let driver = program(&driver, DRIVER)?;
    arguments.extend(["--peers".to_owned(), peers()?.display().to_string()]);
    Ok(bounded::run(Command::new(driver).args(arguments), options.limit())?)
}

/// Builds the peers.
fn peers() -> Result<PathBuf> {
    let peers = ["build", "--release", "--all-features", "--manifest-path", PEERS];
    program(&peers, "farcall-bench-peers")
}

fn program(arguments: &[&str], name: &str) -> Result<PathBuf> {
    let built = cargo::executables(arguments, BUILD_LIMIT)?;
    let found = built.into_iter().find(|executable| executable.name == name);
    Ok(found.with_context(|| format!("the build produced no {name}"))?.path)
}
