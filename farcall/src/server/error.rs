//! Errors of a server at its address.

use std::io;

use thiserror::Error;

use crate::{Address, AddressError};

/// An address that cannot be listened on.
#[derive(Error)]
#[non_exhaustive]
pub enum BindError {
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
        "cannot listen on {address}: RDMA is required and not possible: {reason}; to serve clients \
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
        "cannot serve byte streams that the program accepts itself with proxy_protocol: the \
         program reads what their proxy says"
    )]
    ProxiedStreams,
    /// A server with `tls`, or one that requires encryption, was given byte streams that the
    /// program accepts itself.
    #[error(
        "cannot serve byte streams that the program accepts itself under `tls` or \
         require_encryption: what encrypts them is the program's business"
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
}

rpc_core::readable_debug!(BindError);

/// A server that could not be begun at its address, or that can go on no longer.
#[derive(Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
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

rpc_core::readable_debug!(ServeError);
