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
        /// What the operating system says.
        #[source]
        error: io::Error,
    },
    /// It ended without success.
    #[error("`{line}` failed: {status}{}", after_colon(.errors))]
    Failed {
        /// Its command line.
        line: String,
        /// How it ended.
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
        /// What was waited for.
        what: String,
        /// The bound.
        limit: Duration,
    },
    /// It ended although its answer was waited for.
    #[error("the {name} ended by itself: {end}")]
    Ended {
        /// What it is called.
        name: String,
        /// How it ended, as far as that is known.
        end: String,
    },
    /// Its answer is no JSON, or another message.
    #[error("the {name} said what is not understood: {line}")]
    Misunderstood {
        /// What it is called.
        name: String,
        /// What it said.
        line: String,
        /// Where the message is wrong.
        #[source]
        error: serde_json::Error,
    },
    /// This program was asked to end.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refuses something.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

fn after_colon(errors: &str) -> String {
    if errors.is_empty() { String::new() } else { format!(": {errors}") }
}
