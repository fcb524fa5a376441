//! Why a behaviour was not shown, and where in it.

use std::fmt;
use std::panic::Location;

use farcall::rdma::RkeyScope;
use farcall::{AddressError, ConnectError, ServeError, Status};
use farcall_testkit::calls::Difference;
use thiserror::Error;

/// A behaviour was not shown.
#[derive(Debug, Error)]
#[error("{at}: {cause}")]
pub struct Failure {
    at: &'static Location<'static>,
    cause: Cause,
}

/// The cause of a failure.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Cause {
    /// A call failed that was to succeed.
    #[error("the call ended with {0}")]
    Status(#[from] Status),
    /// An address was not one.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No connection could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No server could be started, or it ended with an error.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// tonic's own client or server failed.
    #[error("tonic: {0}")]
    Tonic(#[from] tonic::transport::Error),
    /// A task of the behaviour did not end by itself.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// A connection runs over another transport than the one under test.
    #[error("the connection runs over {found} instead of {expected} (fallback: {fallback:?})")]
    Transport {
        /// The transport under test.
        expected: &'static str,
        /// Transport of the connection.
        found: String,
        /// The reason that the connection gives.
        fallback: Option<String>,
    },
    /// The keys that RDMA peers are given reach farther or less far than under test.
    #[error("keys reach as far as {found:?} instead of {expected:?}")]
    RkeyScope {
        /// Scope under test.
        expected: RkeyScope,
        /// Scope of each lane of one side. Empty if it has no lane.
        found: Vec<RkeyScope>,
    },
    /// A handler did not say what it saw.
    #[error("the handler did not say what it saw")]
    Silent,
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s")]
    TimedOut {
        /// The event that was awaited.
        what: &'static str,
        /// The bound in seconds.
        seconds: u64,
    },
    /// Bytes are not those that they had to be.
    #[error("{what}: {difference}")]
    Bytes {
        /// The value that was checked.
        what: String,
        /// The difference.
        difference: Difference,
    },
    /// A value is not what it has to be.
    #[error("{what}: {found} instead of {expected}")]
    Different {
        /// The value that was checked.
        what: String,
        /// The expected value.
        expected: String,
        /// The actual value.
        found: String,
    },
}

impl Failure {
    /// A failure at the place that asks for it.
    #[track_caller]
    pub(crate) fn new(cause: Cause) -> Self {
        Self { at: Location::caller(), cause }
    }

    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
}

impl<T: Into<Cause>> From<T> for Failure {
    #[track_caller]
    fn from(cause: T) -> Self {
        Self::new(cause.into())
    }
}

/// Checks that a value is what it has to be.
#[track_caller]
pub(crate) fn check_eq<T>(what: &str, found: &T, expected: &T) -> Result<(), Failure>
where
    T: PartialEq + fmt::Debug + ?Sized,
{
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
    Err(Failure::new(Cause::Different { what: what.to_owned(), expected, found }))
}

/// Checks that something holds; `found` says what was found instead.
///
/// # Errors
///
/// Returns an error at the place of the call if it does not hold.
#[track_caller]
pub fn check(holds: bool, what: &str, found: impl fmt::Debug) -> Result<(), Failure> {
    if holds {
        return Ok(());
    }
    let found = format!("{found:?}");
    let expected = "what was expected".to_owned();
    Err(Failure::new(Cause::Different { what: what.to_owned(), expected, found }))
}

/// The status of a call that has to fail.
#[track_caller]
pub(crate) fn refused<T>(what: &str, result: Result<T, Status>) -> Result<Status, Failure> {
    match result {
        Err(status) => Ok(status),
        Ok(_) => {
            let (found, expected) = ("success".to_owned(), "a status".to_owned());
            Err(Failure::new(Cause::Different { what: what.to_owned(), expected, found }))
        }
    }
}
