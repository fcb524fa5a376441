//! Why a connection could not be made.

use std::io;

use thiserror::Error;

use crate::wire::ProtocolError;

/// A connection could not be made. No call was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The byte stream could not be opened.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The byte stream failed during the handshake.
    #[error("the handshake with {address} failed: {source}")]
    Handshake {
        /// The peer.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The peer answered something that is not the protocol.
    #[error("the handshake with {address} failed: {source}")]
    Protocol {
        /// The peer.
        address: String,
        /// What is wrong.
        source: ProtocolError,
    },
    /// The handshake did not end in time.
    #[error("the handshake with {address} did not end within {timeout_ms} ms")]
    TimedOut {
        /// The peer.
        address: String,
        /// The bound, in milliseconds.
        timeout_ms: u128,
    },
    /// The address requires an upgrade that did not come about.
    #[error("{upgrade} is required, and was not possible with {address}: {reason}")]
    UpgradeRequired {
        /// The peer.
        address: String,
        /// The upgrade's name.
        upgrade: &'static str,
        /// Why it was not possible.
        reason: String,
    },
    /// The last attempt to connect failed, or the required path has, and no attempt is made yet.
    #[error("{reason}; it is tried again in {wait_ms} ms")]
    Waiting {
        /// Why it failed.
        reason: String,
        /// How long until then, in milliseconds.
        wait_ms: u128,
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

impl ConnectError {
    /// Whether a later attempt may succeed, as opposed to one that cannot with this configuration
    /// and in this process.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Handshake { .. }
            | Self::Protocol { .. }
            | Self::TimedOut { .. }
            | Self::UpgradeRequired { .. }
            | Self::Waiting { .. } => true,
            Self::Panicked | Self::RuntimeEnded | Self::Address { .. } => false,
        }
    }
}
