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
/// Its text has the reason, and so have its fields. Only a reason that is an earlier error has
/// that as its source, for programs: [`CloseReason::of`] finds the end of the last connection
/// there.
///
/// [`CloseReason::of`]: crate::transport::CloseReason::of
#[derive(Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The byte stream could not be opened.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// The byte stream failed during the handshake.
    #[error("the handshake with {address} failed: {reason}")]
    Handshake {
        /// The peer.
        address: String,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// There is no TLS session with the server: a certificate was refused, or one side does not
    /// speak TLS.
    #[error("the TLS handshake with {address} failed: {reason}")]
    Tls {
        /// The peer.
        address: String,
        /// What is wrong, and with which setting where that can be told.
        reason: String,
    },
    /// The peer answered something that is not the protocol.
    #[error("the handshake with {address} failed: {reason}{}", grpc_address(address, reason))]
    Protocol {
        /// The peer.
        address: String,
        /// What is wrong.
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
    #[error("cannot connect to {address}: {upgrade} is required and not possible: {reason}")]
    UpgradeRequired {
        /// The peer.
        address: String,
        /// The upgrade's name.
        upgrade: &'static str,
        /// Why it was not possible.
        #[source]
        reason: Reason,
        /// Whether that can pass while both processes run.
        can_pass: bool,
    },
    /// The last attempt to connect failed, or the required path has, and no attempt is made yet.
    #[error("{reason}; the channel tries again in {} ms", wait.as_millis())]
    Waiting {
        /// Why it failed.
        #[source]
        reason: Reason,
        /// How long until then, rounded up to milliseconds.
        wait: Duration,
    },
    /// The code that connects panicked, which is a bug.
    #[error("the attempt to connect panicked")]
    Panicked,
    /// The runtime that was to connect has ended.
    #[error("the runtime that was to connect has ended")]
    RuntimeEnded,
    /// The address cannot be used as given.
    #[error("cannot connect to {address}: {reason}")]
    Address {
        /// The address as given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The text alone: it has those of the causes.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
        match self {
            Self::Waiting { reason, .. } => reason.to_string(),
            error => error.to_string(),
        }
    }

    /// Whether a later attempt may succeed, as opposed to one that cannot with this configuration
    /// and in this process.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Handshake { .. }
            | Self::Protocol { .. }
            | Self::Tls { .. }
            | Self::TimedOut { .. }
            | Self::UpgradeRequired { .. }
            | Self::Waiting { .. } => true,
            Self::Panicked | Self::RuntimeEnded | Self::Address { .. } => false,
        }
    }
}
