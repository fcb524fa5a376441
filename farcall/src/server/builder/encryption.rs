//! Whether and how a server's connections are encrypted.

use super::ServerBuilder;
#[cfg(any(feature = "settings", feature = "tls"))]
use crate::tls::ServerTls;
#[cfg(feature = "settings")]
use crate::{Address, server::listener};

impl ServerBuilder {
    /// Puts TLS around every connection over TCP, whichever path calls take later. The address may
    /// be any that TCP serves; at `unix://` and `inproc://` addresses the server does not start,
    /// and neither does it for byte streams that the program accepts itself.
    ///
    /// A handler finds the client's verified identity by
    /// [`PeerInfo::identity`](crate::PeerInfo::identity). The handshake counts towards
    /// [`handshake_timeout`](Self::handshake_timeout).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &ServerTls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Whether only encrypted connections are accepted from other hosts; off by default. The
    /// server does not start without `tls` then, and RDMA, which is not encrypted, is refused with
    /// that reason: clients at `auto://` stay on TCP, and at `rdma://` the server does not start
    /// unless [`rdma_required`](Self::rdma_required) is off. Unix sockets and connections inside
    /// the process do not leave the host, and are left alone.
    #[must_use]
    pub fn require_encryption(mut self, is_required: bool) -> Self {
        self.require_encryption = Some(is_required);
        self
    }

    /// The handle of [`tls`](Self::tls), if there is one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn get_tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// Whether only encrypted connections are accepted from other hosts.
    #[must_use]
    pub fn get_require_encryption(&self) -> bool {
        self.require_encryption.unwrap_or_else(|| self.config.require_encryption())
    }
}

#[cfg(feature = "settings")]
impl ServerBuilder {
    /// The same builder with TLS, or without it.
    pub(crate) fn set_tls(mut self, tls: Option<ServerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Why the server could not listen at `address`, by what is asked of its encryption.
    pub(crate) fn refusal(&self, address: &Address) -> Option<&'static str> {
        listener::refusal(!address.is_local(), self.tls.is_some(), self.get_require_encryption())
    }
}
