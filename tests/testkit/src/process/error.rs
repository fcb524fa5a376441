//! Why a child process was of no use.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

/// A child process did not do what it was started for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program cannot be started.
    #[error("cannot start `{line}`")]
    Start {
        /// Its command line.
        line: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// It ended without success.
    #[error("`{line}` failed: {status}{}", after_colon(.errors))]
    Failed {
        /// Its command line.
        line: String,
        /// The exit status.
        status: ExitStatus,
        /// Its standard error, where that was a pipe.
        errors: String,
    },
    /// It was still running at its bound and has been killed.
    #[error("`{line}` hung: still running after {} s, killed", .limit.as_secs())]
    Expired {
        /// Its command line.
        line: String,
        /// The bound.
        limit: Duration,
    },
    /// It does not end although it was killed: it is in an uninterruptible system call.
    #[error("`{line}` does not end although it was killed")]
    Unkillable {
        /// Its command line.
        line: String,
    },
    /// Its output did not end with it: another process holds the pipe.
    #[error("the output of `{line}` did not end")]
    OutputOpen {
        /// Its command line.
        line: String,
    },
    /// It printed what is not UTF-8.
    #[error("`{line}` printed what is not UTF-8")]
    NotText {
        /// Its command line.
        line: String,
    },
    /// It was to answer, or to end, and did not.
    #[error("{what} did not happen within {} s", .limit.as_secs_f64())]
    Hung {
        /// The event that was awaited.
        what: String,
        /// The bound.
        limit: Duration,
    },
    /// It ended although its answer was waited for.
    #[error("the {name} ended by itself: {end}")]
    Ended {
        /// Name of the process.
        name: String,
        /// The exit status, if it is known.
        end: String,
    },
    /// Its answer is no JSON, or another message.
    #[error("the {name} said what is not understood: {line}")]
    Misunderstood {
        /// Name of the process.
        name: String,
        /// The line that the process wrote.
        line: String,
        /// The parser's error, with its position.
        #[source]
        error: serde_json::Error,
    },
    /// This program was asked to end.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refuses something.
    #[error("{what}")]
    Io {
        /// The operation that failed.
        what: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

fn after_colon(errors: &str) -> String {
    if errors.is_empty() { String::new() } else { format!(": {errors}") }
}
