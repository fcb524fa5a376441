//! `cargo xtask scenario`: what operators do to servers under load, with real processes on
//! loopback, as counts with a verdict.
//!
//! The scenarios are `farcall-scenario`'s, in `tests/rig`; here it is built and run.

mod etcd;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};
use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

/// Arguments of `cargo xtask scenario`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScenarioOptions {
    /// Show these only: rolling, tls, skew.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show those that every build runs, whose verdict no load on the machine changes.
    #[arg(long, conflicts_with = "names")]
    short: bool,
}

const PROGRAM: RdmaProgram = RdmaProgram {
    package: "farcall-rig",
    target: Target::Bin { name: "farcall-scenario", test: "soak" },
    arguments: &[],
    limit_seconds: LIMIT.as_secs(),
};

/// The bound on all scenarios, several times what they take on two cores.
const LIMIT: Duration = Duration::from_secs(600);

/// Shows the scenarios of `options`.
///
/// # Errors
///
/// Returns an error if the program cannot be built, or if a scenario does not hold; what it showed
/// has been printed by then.
pub(crate) fn run(options: &ScenarioOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    Ok(bounded::run(&mut command(&arguments(options))?, LIMIT)?)
}

/// Shows the short ones, as one of the checks.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn short() -> Result<()> {
    Ok(bounded::run(&mut command(&["run".to_owned(), "--short".to_owned()])?, LIMIT)?)
}

/// The program with these arguments, and with an etcd where there is one.
fn command(arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(build()?);
    if let Some(etcd) = etcd::program() {
        command.env("FARCALL_ETCD", etcd);
    }
    command.args(arguments);
    Ok(command)
}

fn build() -> Result<PathBuf> {
    let jobs = PROGRAM.build(&Default::default())?;
    Ok(jobs.into_iter().next().context("the build produced no program")?.program)
}

fn arguments(options: &ScenarioOptions) -> Vec<String> {
    let form = options.short.then(|| "--short".to_owned());
    ["run".to_owned()].into_iter().chain(form).chain(options.names.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_programs_arguments() {
        let line = |names: &[&str], short| {
            let names = names.iter().map(ToString::to_string).collect();
            arguments(&ScenarioOptions { names, short }).join(" ")
        };
        assert_eq!(line(&[], false), "run");
        assert_eq!(line(&["tls", "skew"], false), "run tls skew");
        assert_eq!(line(&[], true), "run --short");
    }
}
