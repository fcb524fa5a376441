//! The application protocol that both ends negotiate in the TLS handshake (ALPN).

use std::sync::Arc;

use rpc_core::connect::Alpn;

/// The policy for a peer that negotiates no protocol in the TLS handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AlpnPolicy {
    /// Refuses the peer. A server still treats such a client as HTTP/1, since probes do not use
    /// ALPN.
    #[default]
    Required,
    /// Accepts the peer. Its first bytes identify the protocol, as without TLS.
    ///
    /// A load balancer that terminates TLS and encrypts again often negotiates nothing. Without
    /// ALPN, an attacker in between can redirect a client's bytes to a protocol that the client
    /// does not speak.
    Optional,
}

/// The protocols of one end of a session, and its policy for a peer that negotiates none of them.
#[derive(Debug, Clone)]
pub(super) struct Protocols {
    pub(super) list: Arc<[Alpn]>,
    pub(super) policy: AlpnPolicy,
}

impl Protocols {
    /// Returns the protocol IDs for a TLS handshake.
    pub(super) fn ids(&self) -> Vec<Vec<u8>> {
        self.list.iter().map(|protocol| protocol.id.as_bytes().to_vec()).collect()
    }

    /// Returns the protocol with this ID, if it is in the list.
    pub(super) fn find(&self, id: &[u8]) -> Option<Alpn> {
        self.list.iter().find(|protocol| protocol.id.as_bytes() == id).copied()
    }
}
