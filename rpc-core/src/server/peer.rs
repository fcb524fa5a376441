//! The peer of a connection, as handlers see it.

use std::net::SocketAddr;
use std::sync::Arc;

use tonic::Extensions;

use crate::payload::buffer::Buffers;
use crate::transport::{Addresses, Identity, UCred};

/// The connection of a call, as its handler sees it. Made once for each connection and shared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The transport that carries the call, for example `tcp` or `rdma`.
    pub transport: &'static str,
    /// The connection's two ends, where they have addresses.
    pub addresses: Addresses,
    /// Where memory for answers comes from.
    pub(crate) buffers: Buffers,
}

impl PeerInfo {
    /// What is known of a connection over `transport` between `addresses`.
    #[must_use]
    pub fn new(transport: &'static str, addresses: Addresses) -> Self {
        Self { transport, addresses, buffers: Buffers::default() }
    }

    /// The client's address; `None` where the transport has none, as inside a process.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.addresses.peer
    }

    /// The server's own address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses.local
    }

    /// The client's identity, which the TLS handshake of its connection has verified; `None` where
    /// there is no TLS, or where the client has shown no certificate. On a connection that moved to
    /// RDMA it is the identity proven on the TLS connection that it started on.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate rpc_core as farcall;
    /// use farcall::server::PeerInfo;
    ///
    /// /// Whether the handler that asks serves the billing service.
    /// fn is_billing() -> bool {
    ///     let peer = PeerInfo::current();
    ///     let identity = peer.as_ref().and_then(|peer| peer.identity());
    ///     identity.is_some_and(|identity| identity.has_name("spiffe://example.org/billing"))
    /// }
    /// ```
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.addresses.identity()
    }

    /// The client's user, group and process, where the connection is a Unix socket: the kernel
    /// vouches for them.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate rpc_core as farcall;
    /// use farcall::Status;
    /// use farcall::server::PeerInfo;
    ///
    /// /// Refuses a call of anyone but root.
    /// fn check_root() -> Result<(), Status> {
    ///     let credentials = PeerInfo::current().and_then(|peer| peer.credentials());
    ///     match credentials {
    ///         Some(client) if client.uid() == 0 => Ok(()),
    ///         _ => Err(Status::permission_denied("only root, over the Unix socket")),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn credentials(&self) -> Option<UCred> {
        self.addresses.credentials
    }
}

/// What of the connection is put into the extensions of every request.
///
/// A handler can always ask [`PeerInfo::current`], which allocates nothing. An entry in the
/// extensions costs three allocations a call, as many as half of a small call's whole budget, so
/// that it has to be asked for.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum PeerExtensions {
    /// Nothing.
    #[default]
    Omit,
    /// An `Arc<PeerInfo>`.
    PeerInfo,
    /// Whatever the function inserts: what another framework's handlers look for.
    With(fn(&PeerInfo, &mut Extensions)),
}

impl PeerExtensions {
    /// Puts into `extensions` what has been asked for.
    pub(super) fn insert(self, peer: &Arc<PeerInfo>, extensions: &mut Extensions) {
        match self {
            Self::Omit => {}
            Self::PeerInfo => {
                extensions.insert(Arc::clone(peer));
            }
            Self::With(insert) => insert(peer, extensions),
        }
    }
}
