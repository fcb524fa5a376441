//! Additions by rustup to the installed Rust: the standard library of another target, and the
//! oldest supported toolchain.
//!
//! A Rust packaged by a distribution has no rustup, and a machine may reach no server of rustup's.
//! Steps that need either are then skipped with a message.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

use crate::program;

/// The oldest Rust that farcall is promised to build with.
pub(crate) const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// A toolchain is 200 MB of downloads at most.
const ADD_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Adds the standard library of `target` to the toolchain in use, unless it is there.
///
/// # Errors
///
/// Returns an error if it is missing and cannot be added.
pub(crate) fn add_target(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    let folder = bounded::output(&mut rustc, PROBE_LIMIT)?;
    if Path::new(folder.trim()).exists() {
        return Ok(());
    }
    eprintln!("xtask: adding Rust's standard library for {target}");
    rustup(&["target", "add", target])
        .with_context(|| format!("there is no standard library for {target}"))
}

/// Installs the [oldest](OLDEST) toolchain, unless it is there.
///
/// # Errors
///
/// Returns an error if it is missing and cannot be installed.
pub(crate) fn add_oldest() -> Result<()> {
    if bounded::succeeds(with_oldest("rustc").arg("--version"), PROBE_LIMIT) {
        return Ok(());
    }
    eprintln!("xtask: installing Rust {OLDEST}, the oldest that farcall builds with");
    rustup(&["toolchain", "install", OLDEST, "--profile", "minimal", "--no-self-update"])
        .with_context(|| format!("Rust {OLDEST} is not installed"))
}

/// A command of the oldest toolchain.
pub(crate) fn with_oldest(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", OLDEST, program]);
    command
}

fn rustup(arguments: &[&str]) -> Result<()> {
    if program::find("rustup").is_none() {
        bail!("this machine has no rustup");
    }
    Ok(bounded::run(Command::new("rustup").args(arguments), ADD_LIMIT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_this_machine_is_there() {
        let printed = bounded::output(Command::new("rustc").arg("-vV"), PROBE_LIMIT).unwrap();
        let host = printed.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        add_target(host).unwrap();
    }

    #[test]
    fn a_target_that_does_not_exist_is_an_error() {
        assert!(add_target("no-such-target").is_err());
    }

    #[test]
    fn the_oldest_toolchain_is_a_version() {
        assert_eq!(OLDEST.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 2);
    }
}
