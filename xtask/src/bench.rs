//! `cargo xtask bench`: the figures of the goals, from a bare machine to their table.
//!
//! What is measured and how is `farcall-bench`'s, in `benches`; here it is built and started.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::bounded;
use crate::cargo::Cargo;
use crate::setup::{self, Purpose};

/// The driver.
const DRIVER: &str = "farcall-bench";

/// The manifest of the peers. They are a workspace of their own, so that what they bring is built
/// by nobody else.
pub(crate) const PEERS: &str = "benches/peers/Cargo.toml";

/// From nothing, with the peers' dependencies, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(2400);

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BenchOptions {
    /// Measure this group only. May be repeated.
    #[arg(long, value_enum)]
    group: Vec<Group>,
    /// Measure this figure only, for example T2. May be repeated.
    #[arg(long, value_name = "NUMBER")]
    only: Vec<String>,
    /// Under five minutes for each group.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// As long as a night allows, with every peer in every measurement.
    #[arg(long)]
    full: bool,
    /// Put the figures into this file, in place of older ones with the same numbers.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Figures that are measured in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// TCP over loopback, on this host.
    Tcp,
}

impl BenchOptions {
    /// The arguments of the driver for a group.
    fn arguments(&self, group: Group) -> Vec<String> {
        let name = group.to_possible_value();
        let name = name.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut arguments = vec!["--group".to_owned(), name];
        for number in &self.only {
            arguments.extend(["--only".to_owned(), number.clone()]);
        }
        arguments.extend(self.quick.then(|| "--quick".to_owned()));
        arguments.extend(self.full.then(|| "--full".to_owned()));
        if let Some(file) = &self.json {
            arguments.extend(["--json".to_owned(), file.display().to_string()]);
        }
        arguments
    }

    /// Several times what the driver should take.
    fn limit(&self) -> Duration {
        Duration::from_secs(match (self.quick, self.full) {
            (true, _) => 900,
            (_, true) => 6 * 3600,
            _ => 3600,
        })
    }
}

/// Builds what measures and what is measured, and runs it, one group after the other.
///
/// # Errors
///
/// When something it needs cannot be installed or built, and when a figure could not be measured.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    let all = Group::value_variants();
    let groups = if options.group.is_empty() { all } else { &options.group };
    for group in groups {
        match group {
            Group::Tcp => tcp(options)?,
        }
    }
    Ok(())
}

/// The group that runs on this host.
fn tcp(options: &BenchOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build, Purpose::Bench])?;
    let cargo = Cargo::new()?;
    let driver = ["build", "--release", "--package", "farcall-benches"];
    let driver = program(&cargo, &driver, DRIVER)?;
    let mut arguments = options.arguments(Group::Tcp);
    let peers = ["build", "--release", "--all-features", "--manifest-path", PEERS];
    let peers = program(&cargo, &peers, "farcall-bench-peers")?;
    arguments.extend(["--peers".to_owned(), peers.display().to_string()]);
    bounded::run(Command::new(driver).args(arguments), options.limit())
}

fn program(cargo: &Cargo, arguments: &[&str], name: &str) -> Result<PathBuf> {
    let built = cargo.executables(arguments, BUILD_LIMIT)?;
    let found = built.into_iter().find(|executable| executable.name == name);
    Ok(found.with_context(|| format!("the build gave no {name}"))?.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_what_was_asked_for() {
        let options = BenchOptions {
            group: Vec::new(),
            only: vec!["T1".into(), "T2".into()],
            quick: true,
            full: false,
            json: Some("figures.json".into()),
        };
        let line = options.arguments(Group::Tcp).join(" ");
        assert_eq!(line, "--group tcp --only T1 --only T2 --quick --json figures.json");
        assert!(options.limit() < BenchOptions { quick: false, ..options.clone() }.limit());
    }
}
