//! Why a connection could not be made.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tonic::Status;

use crate::Reason;
use crate::wire::{ProtocolError, Spoken};

/// A connection could not be made. No call was sent.
///
/// Its text has the reason. The error behind that is its source, for programs:
/// [`CloseReason::of`] finds the end of the last connection there, and
/// [`io_error`](Self::io_error) the operating system's error.
///
/// [`CloseReason::of`]: crate::transport::CloseReason::of
pub struct ConnectError(Box<ConnectFault>);

/// The reasons why a connection cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The address cannot be used as given.
    Address,
    /// The byte stream could not be opened.
    Unreachable,
    /// There is no TLS session with the server: a certificate was refused, or one side does not
    /// speak TLS.
    Tls,
    /// The handshake failed: the byte stream ended, or the peer does not speak the protocol.
    Handshake,
    /// The handshake did not end in time.
    TimedOut,
    /// The address requires RDMA, which is not possible.
    RdmaRequired,
    /// The last attempt failed, and no other one is due yet: see [`ConnectError::retry_in`].
    BackingOff,
    /// The runtime that was to connect has ended, or its task has panicked.
    Shutdown,
}

impl ConnectError {
    /// Returns the kind of reason.
    #[must_use]
    pub fn kind(&self) -> ConnectErrorKind {
        match self.fault() {
            ConnectFault::Address { .. } => ConnectErrorKind::Address,
            ConnectFault::Unreachable { .. } => ConnectErrorKind::Unreachable,
            ConnectFault::Tls { .. } => ConnectErrorKind::Tls,
            ConnectFault::Handshake { .. } | ConnectFault::Protocol { .. } => {
                ConnectErrorKind::Handshake
            }
            ConnectFault::TimedOut { .. } => ConnectErrorKind::TimedOut,
            ConnectFault::UpgradeRequired { .. } => ConnectErrorKind::RdmaRequired,
            ConnectFault::Waiting { .. } => ConnectErrorKind::BackingOff,
            ConnectFault::Panicked | ConnectFault::RuntimeEnded => ConnectErrorKind::Shutdown,
        }
    }

    /// Returns the address that was tried, as it was written. `None` where nothing was tried.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self.fault() {
            ConnectFault::Address { address, .. }
            | ConnectFault::Unreachable { address, .. }
            | ConnectFault::Tls { address, .. }
            | ConnectFault::Handshake { address, .. }
            | ConnectFault::Protocol { address, .. }
            | ConnectFault::TimedOut { address, .. }
            | ConnectFault::UpgradeRequired { address, .. } => Some(address),
            ConnectFault::Waiting { .. } | ConnectFault::Panicked | ConnectFault::RuntimeEnded => {
                None
            }
        }
    }

    /// Returns the time until the next attempt, rounded up to milliseconds, if the channel is
    /// backing off.
    #[must_use]
    pub fn retry_in(&self) -> Option<Duration> {
        match self.fault() {
            ConnectFault::Waiting { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// Returns the operating system's error, if it is the reason.
    #[must_use]
    pub fn io_error(&self) -> Option<&io::Error> {
        match self.fault() {
            ConnectFault::Unreachable { reason, .. } | ConnectFault::Handshake { reason, .. } => {
                Some(reason)
            }
            _ => None,
        }
    }

    /// Returns the fault.
    #[doc(hidden)]
    #[must_use]
    pub fn fault(&self) -> &ConnectFault {
        &self.0
    }
}

impl From<ConnectFault> for ConnectError {
    fn from(fault: ConnectFault) -> Self {
        Self(Box::new(fault))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The text alone: it has those of the causes.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The fault behind a [`ConnectError`]. Public for the crates that make connections.
#[doc(hidden)]
#[derive(Error)]
pub enum ConnectFault {
    /// The byte stream could not be opened.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The operating system's reason.
        #[source]
        reason: io::Error,
    },
    /// The byte stream failed during the handshake.
    #[error("the handshake with {address} failed: {reason}")]
    Handshake {
        /// The peer.
        address: String,
        /// The operating system's reason.
        #[source]
        reason: io::Error,
    },
    /// There is no TLS session with the server: a certificate was refused, or one side does not
    /// speak TLS.
    #[error("the TLS handshake with {address} failed: {reason}")]
    Tls {
        /// The peer.
        address: String,
        /// Description of the fault, with the setting if that is known.
        reason: String,
    },
    /// The peer answered something that is not the protocol.
    #[error("the handshake with {address} failed: {reason}{}", grpc_address(address, reason))]
    Protocol {
        /// The peer.
        address: String,
        /// Description of the violation.
        #[source]
        reason: ProtocolError,
    },
    /// The handshake did not end in time.
    #[error(
        "the handshake with {address} did not end within {} ms (handshake_timeout)",
        timeout.as_millis()
    )]
    TimedOut {
        /// The peer.
        address: String,
        /// The bound.
        timeout: Duration,
    },
    /// The address requires an upgrade that did not come about.
    #[error("cannot connect to {address}: {upgrade} is required but not possible: {reason}")]
    UpgradeRequired {
        /// The peer.
        address: String,
        /// The upgrade's name.
        upgrade: &'static str,
        /// Why it was not possible.
        #[source]
        reason: Reason,
        /// True if the reason can pass while both processes run.
        can_pass: bool,
    },
    /// The last attempt to connect failed, or the required path has, and no attempt is made yet.
    #[error("{reason}; the channel tries again in {} ms", wait.as_millis())]
    Waiting {
        /// Why it failed.
        #[source]
        reason: Reason,
        /// Time until then, rounded up to milliseconds.
        wait: Duration,
    },
    /// The code that connects panicked, which is a bug.
    #[error("the attempt to connect panicked: stderr has the message")]
    Panicked,
    /// The runtime that was to connect has ended.
    #[error("the tokio runtime of the attempt has ended: call again on a runtime that runs")]
    RuntimeEnded,
    /// The address cannot be used as given.
    #[error("cannot connect to {address}: {reason}")]
    Address {
        /// The address as given.
        address: String,
        /// Description of the fault.
        reason: String,
    },
}

crate::readable_debug!(ConnectFault);

/// The address by which a channel calls a server that speaks HTTP/2, after a colon.
fn grpc_address(address: &str, reason: &ProtocolError) -> String {
    let is_http2 = reason.spoken() == Some(Spoken::Http2);
    let authority = address.split_once("://").map(|(_, authority)| authority);
    let authority = authority.filter(|_| is_http2 && !address.starts_with("unix"));
    authority.map_or_else(String::new, |authority| format!(": use grpc://{authority}"))
}

/// The text of a status of a channel that is not connected for `reason`: it says when the next
/// attempt is due.
pub(crate) fn with_retry(reason: &str, retry_in: Duration) -> String {
    match retry_in.as_millis() {
        0 => format!("{reason}; the next call tries again"),
        // Rounded up: a caller that waits for so long does not come too early.
        wait_ms => format!("{reason}; the channel tries again in {} ms", wait_ms + 1),
    }
}

/// The source of a status whose call found no connection. The status's text is the error's.
#[derive(Clone)]
struct NeverSent(Arc<ConnectError>);

impl fmt::Display for NeverSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was never sent")
    }
}

impl std::error::Error for NeverSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// A status shows its source in this way, behind its own text.
impl fmt::Debug for NeverSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("never sent")
    }
}

impl ConnectError {
    /// Why there was no connection for the call that ended with `status`; `None` where that is not
    /// why it ended.
    #[must_use]
    pub fn of(status: &Status) -> Option<&Self> {
        status.source()?.downcast_ref().map(|NeverSent(error)| &**error)
    }

    /// The same, to be kept.
    pub(crate) fn shared_of(status: &Status) -> Option<Arc<Self>> {
        status.source()?.downcast_ref().map(|NeverSent(error)| Arc::clone(error))
    }

    /// The status of a call that finds no connection. The next attempt is due in `retry_in`; absent
    /// where none may succeed.
    pub(crate) fn into_status(self: Arc<Self>, retry_in: Option<Duration>) -> Status {
        let mut status = Status::unavailable(match retry_in {
            Some(retry_in) => with_retry(&self.reason(), retry_in),
            None => self.to_string(),
        });
        status.set_source(Arc::new(NeverSent(self)));
        status
    }

    /// The reason, without the time of the next attempt.
    pub(crate) fn reason(&self) -> String {
        match self.fault() {
            ConnectFault::Waiting { reason, .. } => reason.to_string(),
            fault => fault.to_string(),
        }
    }

    /// Returns true if a later attempt may succeed with this configuration and in this process.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self.kind(), ConnectErrorKind::Address | ConnectErrorKind::Shutdown)
    }
}
