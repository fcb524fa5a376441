//! The reasons why something could not be shown, as opposed to what it showed.

use std::io;

use farcall::tls::TlsError;
use farcall_suite::Failure;
use farcall_testkit::certificates::CertificateError;
use farcall_testkit::process::ProcessError;
use thiserror::Error;

/// A program, or one of its rows, could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RigError {
    /// This is no place for faults.
    #[error(
        "this cuts links, removes devices and kills processes, and runs in the virtual machine \
         only: `cargo xtask faults`"
    )]
    NotInMachine,
    /// A row was asked for that does not exist.
    #[error("there is no row `{0}`; the command `list` names them")]
    NoSuchRow(String),
    /// The machine has not what the rows need.
    #[error("the machine has no {0}")]
    Missing(String),
    /// Something did not happen within its bound.
    #[error("{what} did not happen within {seconds} s")]
    Late {
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
    /// TLS refuses certificates of ours.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl RigError {
    /// Makes the error of a wait that was too long.
    pub(crate) fn late(what: &str, limit: std::time::Duration) -> Self {
        Self::Late { what: what.to_owned(), seconds: limit.as_secs() }
    }
}
