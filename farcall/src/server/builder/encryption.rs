//! Encryption of a server's connections.

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
    /// [`Addresses::identity`](crate::Addresses::identity). The handshake counts towards
    /// [`handshake_timeout`](Self::handshake_timeout).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &ServerTls) -> Self {
        self.tls = Some(tls.clone());
        self
    }
}

#[cfg(feature = "settings")]
impl ServerBuilder {
    /// The same builder with TLS, or without it.
    pub(crate) fn set_tls(mut self, tls: Option<ServerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Returns the reason why the server could not listen at `address` with its encryption.
    pub(crate) fn refusal(&self, address: &Address) -> Option<&'static str> {
        let is_required = self.settings().base.require_encryption;
        listener::refusal(!address.is_local(), self.tls.is_some(), is_required)
    }

    /// Returns the reason why the server could not listen at `address` with its proxies.
    pub(crate) fn proxy_refusal(&self, address: &Address) -> Option<&'static str> {
        let are_named = !self.settings().proxy_protocol.from.is_empty();
        (are_named && address.is_local()).then_some(listener::PROXIES_WITHOUT_TCP)
    }
}
