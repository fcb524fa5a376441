//! The protocol that the two ends agree on in the TLS handshake (ALPN).

use std::sync::Arc;

use rpc_core::connect::Alpn;

/// The rule for a peer that agrees on no protocol in the TLS handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AlpnPolicy {
    /// Refuses it. A server still takes such a client for one of HTTP/1, as probes are.
    #[default]
    Required,
    /// Accepts it: the first bytes tell the protocol, as without TLS. A load balancer that ends TLS
    /// and encrypts anew often agrees on nothing. An attacker between the two could then pass a
    /// client's bytes to another protocol than the client speaks.
    Optional,
}

/// The protocols of one end of a session, and the rule for a peer that agrees on none of them.
#[derive(Debug, Clone)]
pub(super) struct Protocols {
    pub(super) list: Arc<[Alpn]>,
    pub(super) policy: AlpnPolicy,
}

impl Protocols {
    /// The protocols as a TLS handshake offers them.
    pub(super) fn ids(&self) -> Vec<Vec<u8>> {
        self.list.iter().map(|protocol| protocol.id.as_bytes().to_vec()).collect()
    }

    /// The protocol of this list with that name.
    pub(super) fn find(&self, id: &[u8]) -> Option<Alpn> {
        self.list.iter().find(|protocol| protocol.id.as_bytes() == id).copied()
    }
}
