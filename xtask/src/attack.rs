//! `cargo xtask attack`: hostile peers beside honest ones on loopback, as a table with a verdict.
//!
//! The rows and their bounds are `farcall-attack`'s, in `tests/rig`; here it is built and run.
//! It is built as the tests are, with assertions: a defence that only a released build has
//! is none.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};
use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

/// Arguments of `cargo xtask attack`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AttackOptions {
    /// Show these rows only.
    #[arg(value_name = "NAME")]
    rows: Vec<String>,
    /// Name the rows instead of showing them.
    #[arg(long)]
    list: bool,
    /// Show the short form: smaller attacks, and only the rows that every build runs unless some
    /// are named.
    #[arg(long)]
    quick: bool,
}

const PROGRAM: RdmaProgram = RdmaProgram {
    package: "farcall-rig",
    target: Target::Bin { name: "farcall-attack", test: "soak" },
    arguments: &[],
    limit_seconds: FULL_LIMIT.as_secs(),
};

/// The bound on all rows in their full form: the longest hold an attack for a minute and a half.
const FULL_LIMIT: Duration = Duration::from_secs(1800);

/// The bound on the short form, several times what it takes on two cores.
const QUICK_LIMIT: Duration = Duration::from_secs(240);

/// Shows the rows of `options`.
///
/// # Errors
///
/// Returns an error if the program cannot be built, or if a row does not hold; what it showed has
/// been printed by then.
pub(crate) fn run(options: &AttackOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    let program = build()?;
    let limit = if options.quick { QUICK_LIMIT } else { FULL_LIMIT };
    Ok(bounded::run(Command::new(program).args(arguments(options)), limit)?)
}

/// Shows the short form, as one of the checks.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn quick() -> Result<()> {
    Ok(bounded::run(Command::new(build()?).args(["run", "--quick"]), QUICK_LIMIT)?)
}

fn build() -> Result<PathBuf> {
    let jobs = PROGRAM.build(&Default::default())?;
    Ok(jobs.into_iter().next().context("the build produced no program")?.program)
}

fn arguments(options: &AttackOptions) -> Vec<String> {
    if options.list {
        return vec!["list".to_owned()];
    }
    let form = options.quick.then(|| "--quick".to_owned());
    ["run".to_owned()].into_iter().chain(form).chain(options.rows.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_programs_arguments() {
        let line = |list, quick| {
            let rows = vec!["garbage".to_owned(), "ping-flood".to_owned()];
            arguments(&AttackOptions { rows, list, quick }).join(" ")
        };
        assert_eq!(line(true, false), "list");
        assert_eq!(line(false, false), "run garbage ping-flood");
        assert_eq!(line(false, true), "run --quick garbage ping-flood");
    }
}
