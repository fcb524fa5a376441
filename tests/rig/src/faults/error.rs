//! Why a fault could not be shown, as opposed to what it showed.

use std::io;

use thiserror::Error;

use crate::conductor::process::ProcessError;
use farcall_suite::Failure;

/// The matrix, or one of its rows, could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FaultError {
    /// This is no place for faults.
    #[error(
        "this cuts links, removes devices and kills processes, and runs in the virtual machine \
         only: `cargo xtask faults`"
    )]
    NotInMachine,
    /// A row was asked for that does not exist.
    #[error("there is no row `{0}`; `farcall-faults list` names them")]
    NoSuchRow(String),
    /// The machine has not what the faults need.
    #[error("the machine has no {0}")]
    Missing(String),
    /// Something did not happen within its bound.
    #[error("{what} did not happen within {seconds} s")]
    Hung {
        /// The event that was awaited.
        what: String,
        /// The bound in seconds.
        seconds: u64,
    },
    /// A process of ours ended by itself.
    #[error("the {role} ended by itself")]
    Ended {
        /// Role of the process.
        role: &'static str,
    },
    /// A process of ours said something that is none of its messages.
    #[error("the {role} said `{line}`")]
    Unexpected {
        /// Role of the process.
        role: &'static str,
        /// Line that it printed.
        line: String,
    },
    /// A process of ours, or a program that makes or lifts a fault, did not do what it was started
    /// for.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A connection, a server or a call that had to work did not.
    #[error(transparent)]
    Suite(#[from] Failure),
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
}
