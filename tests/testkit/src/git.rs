//! The state of the checkout that a figure was measured on.

use std::process::Command;
use std::time::Duration;

use crate::process::ProcessError;
use crate::process::bounded::tool_output;

/// `git describe` reads the files of the checkout, which is slow in an emulated machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The commit that is checked out where this program runs, marked when files differ from it.
///
/// # Errors
///
/// Returns an error if there is no git or no checkout.
pub fn commit() -> Result<String, ProcessError> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]);
    Ok(tool_output(&mut git, LIMIT)?.trim().to_owned())
}
