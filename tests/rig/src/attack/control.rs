//! The end of a role's standard input: questions come in, answers go out, and its end ends the
//! process, since then the conductor has gone.

use std::io::{self, BufRead as _};

use serde::Serialize;

use super::AttackError;

/// Answers questions until its input ends, then ends the process. It waits for nothing: tasks of
/// a hostile peer never end, and those of its victim may hang.
pub(super) fn answer_until_end(
    mut answer: impl FnMut(&str) -> Result<String, AttackError>,
) -> Result<(), AttackError> {
    for line in io::stdin().lock().lines() {
        println!("{}", answer(&line?)?);
    }
    std::process::exit(0)
}

/// A message as its line.
pub(super) fn line(message: &impl Serialize) -> Result<String, AttackError> {
    Ok(serde_json::to_string(message).map_err(io::Error::other)?)
}

/// Makes the error of a role that received an unknown command.
pub(super) fn misunderstood(text: &str) -> AttackError {
    AttackError::Unexpected { role: "conductor", line: text.to_owned() }
}

/// Logs to the standard error, which the conductor reads, as most programs do: without colours.
pub(super) fn log_to_stderr() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
}
