//! Running a command within a bound on its time, with errors that take a context. Nothing in xtask
//! starts a process in another way.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use farcall_testkit::process::bounded;

pub(crate) use bounded::{End, Running, command_line, succeeds};

/// Runs `command` with the output of this program, at most `limit`, and asks for success.
///
/// # Errors
///
/// When it cannot be started, does not end in time, or fails; the error carries the command line.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    Ok(bounded::run(command, limit)?)
}

/// Runs `command` as [`run`] does and returns its standard output.
///
/// # Errors
///
/// As [`run`], and when the output is not UTF-8.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    Ok(bounded::output(command, limit)?)
}

/// Runs `command` as [`run`] does and returns the bytes of its standard output.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn output_bytes(command: &mut Command, limit: Duration) -> Result<Vec<u8>> {
    Ok(bounded::output_bytes(command, limit)?)
}
