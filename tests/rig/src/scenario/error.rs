//! Why a scenario could not be shown, as opposed to what it showed.

use std::io;

use farcall::tls::TlsError;
use thiserror::Error;

use crate::conductor::process::ProcessError;
use farcall_suite::Failure;

/// A scenario could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Something that had to happen has not.
    #[error("{what} did not happen within {seconds} s")]
    Late {
        /// The event that was awaited.
        what: String,
        /// For how long.
        seconds: u64,
    },
    /// A process of ours did not do what it was started for.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A connection or a server that had to work did not.
    #[error(transparent)]
    Suite(#[from] Failure),
    /// TLS refuses certificates of ours.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] farcall_testkit::certificates::CertificateError),
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
}
