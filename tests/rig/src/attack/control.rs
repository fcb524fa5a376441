//! The conversation of a row's processes with their conductor.

use std::io;

use crate::RigError;
use crate::conductor::role::answer_lines;

/// Answers questions until its input ends, then ends the process. It waits for nothing: tasks of
/// a hostile peer never end, and those of its victim may hang.
pub(super) fn answer_until_end(
    answer: impl FnMut(&str) -> Result<String, RigError>,
) -> Result<(), RigError> {
    answer_lines(answer)?;
    std::process::exit(0)
}

/// Logs to the standard error, which the conductor reads, as most programs do: without colours.
pub(super) fn log_to_stderr() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
}
