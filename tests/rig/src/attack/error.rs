//! Why an attack could not be shown, as opposed to what it showed.

use std::io;

use thiserror::Error;

use crate::conductor::process::ProcessError;
use farcall_suite::Failure;

/// An attack could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttackError {
    /// A row was asked for that does not exist.
    #[error("there is no row `{0}`; `farcall-attack list` names them")]
    NoSuchRow(String),
    /// A process of ours said something that is none of its messages.
    #[error("the {role} said `{line}`")]
    Unexpected {
        /// Role of the process.
        role: &'static str,
        /// Line that it printed.
        line: String,
    },
    /// A file of `/proc` lacks a value.
    #[error("{file} has no {what}")]
    Missing {
        /// The file.
        file: String,
        /// The value.
        what: &'static str,
    },
    /// A process of ours did not do what it was started for.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A connection or a server that had to work did not.
    #[error(transparent)]
    Suite(#[from] Failure),
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
}
