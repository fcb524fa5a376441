//! Errors of a server at its address.

use std::fmt;
use std::io;

use thiserror::Error;

use crate::{Address, AddressError};

/// A server that could not be begun at its address, or that can go on no longer. Its text has the
/// reason.
pub struct ServeError(Box<ServeFault>);

/// The reasons why a server cannot begin or go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServeErrorKind {
    /// The text is not an address.
    Address,
    /// The operating system refuses the address or the listener.
    Refused,
    /// RDMA is impossible here, and the address requires it.
    RdmaRequired,
    /// The settings of the server exclude each other there.
    Settings,
    /// A setting names a method or a service that the server does not have.
    UnknownMethod,
    /// The operating system, or the program's listener, accepts no connection any more.
    Accept,
}

impl ServeError {
    /// Returns the kind of reason.
    #[must_use]
    pub fn kind(&self) -> ServeErrorKind {
        match &*self.0 {
            ServeFault::Address(_) => ServeErrorKind::Address,
            ServeFault::Refused { .. } | ServeFault::Listener { .. } => ServeErrorKind::Refused,
            ServeFault::NoRdma { .. } => ServeErrorKind::RdmaRequired,
            ServeFault::Encryption { .. }
            | ServeFault::ProxyProtocol { .. }
            | ServeFault::ProxiedStreams
            | ServeFault::Streams => ServeErrorKind::Settings,
            ServeFault::Method { .. } => ServeErrorKind::UnknownMethod,
            ServeFault::Accept { .. } | ServeFault::Incoming { .. } => ServeErrorKind::Accept,
        }
    }

    /// Returns the address, where the server has one.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        match &*self.0 {
            ServeFault::Refused { address, .. }
            | ServeFault::NoRdma { address, .. }
            | ServeFault::Encryption { address, .. }
            | ServeFault::ProxyProtocol { address, .. }
            | ServeFault::Accept { address, .. } => Some(address),
            ServeFault::Address(_)
            | ServeFault::ProxiedStreams
            | ServeFault::Streams
            | ServeFault::Method { .. }
            | ServeFault::Listener { .. }
            | ServeFault::Incoming { .. } => None,
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for ServeError {}

rpc_core::readable_debug!(ServeError);

impl From<ServeFault> for ServeError {
    fn from(fault: ServeFault) -> Self {
        Self(Box::new(fault))
    }
}

impl From<AddressError> for ServeError {
    fn from(error: AddressError) -> Self {
        ServeFault::Address(error).into()
    }
}

/// The fault behind an error.
#[derive(Error)]
pub(super) enum ServeFault {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The operating system refuses the address.
    #[error("cannot listen on {address}: {reason}")]
    Refused {
        /// The address.
        address: Address,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// RDMA is impossible here, and the address requires it.
    #[error(
        "cannot listen on {address}: RDMA is required but not possible: {reason}; to serve clients \
         over TCP, listen at auto://, or set rdma_required to false"
    )]
    NoRdma {
        /// The address.
        address: Address,
        /// The missing part.
        reason: String,
    },
    /// A demand for encryption that the address cannot meet.
    #[error("cannot listen on {address}: {reason}")]
    Encryption {
        /// The address.
        address: Address,
        /// The settings that exclude each other, and the fix.
        reason: &'static str,
    },
    /// Proxies are to say who the clients are, and the address is not of TCP.
    #[error("cannot listen on {address}: {reason}")]
    ProxyProtocol {
        /// The address.
        address: Address,
        /// The settings that exclude each other, and the fix.
        reason: &'static str,
    },
    /// A server with `proxy_protocol` was given byte streams that the program accepts itself.
    #[error(
        "proxy_protocol does not work for byte streams that the program accepts: the program has \
         to read the PROXY header"
    )]
    ProxiedStreams,
    /// A server with `tls`, or one that requires encryption, was given byte streams that the
    /// program accepts itself.
    #[error(
        "`tls` and require_encryption do not work for byte streams that the program accepts: the \
         program has to encrypt them"
    )]
    Streams,
    /// A setting names a method or a service that the server does not have.
    #[error("{reason}")]
    Method {
        /// The name, where it was set if a file has it, and what the server has.
        reason: String,
    },
    /// A listener that the program has made cannot be served.
    #[error("cannot serve the listener: {reason}")]
    Listener {
        /// The operating system's reason.
        reason: io::Error,
    },
    /// The operating system accepts no connection there any more.
    #[error("cannot accept connections at {address} any more: {reason}")]
    Accept {
        /// The address.
        address: Address,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// The listener that the program has given accepts no connection any more.
    #[error("cannot accept connections any more: {reason}")]
    Incoming {
        /// The listener's reason.
        reason: io::Error,
    },
}

rpc_core::readable_debug!(ServeFault);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_address_say_what_the_text_says() {
        let address: Address = "tcp://127.0.0.1:1".parse().unwrap();
        let reason = || io::Error::other("the system's reason");
        let refused = ServeFault::Refused { address: address.clone(), reason: reason() };
        let accept = ServeFault::Accept { address: address.clone(), reason: reason() };
        let listener = ServeFault::Listener { reason: reason() };
        let incoming = ServeFault::Incoming { reason: reason() };
        for (fault, kind, address) in [
            (refused, ServeErrorKind::Refused, Some(&address)),
            (accept, ServeErrorKind::Accept, Some(&address)),
            (listener, ServeErrorKind::Refused, None),
            (incoming, ServeErrorKind::Accept, None),
            (ServeFault::Streams, ServeErrorKind::Settings, None),
        ] {
            let (text, error) = (fault.to_string(), ServeError::from(fault));
            assert_eq!((error.kind(), error.address()), (kind, address), "{error}");
            assert_eq!((error.to_string(), format!("{error:?}")), (text.clone(), text));
        }
    }
}
