//! Encryption of a channel's connections.

use super::ChannelBuilder;
#[cfg(feature = "settings")]
use crate::Address;
use rpc_core::client::{CallCredentials, Credentials};

#[cfg(any(feature = "settings", feature = "tls"))]
use crate::tls::ClientTls;

impl ChannelBuilder {
    /// Puts TLS around every connection over TCP, whichever path calls take later. The server's
    /// certificate has to be for the host of the address, unless
    /// [`ClientTlsConfig::with_server_name`](crate::tls::ClientTlsConfig::with_server_name) names
    /// another; for the servers of a list that is the host of each, and for those of a
    /// `dns://` name that name.
    ///
    /// With a `unix://` or an `inproc://` address, and for streams that the program opens itself,
    /// the channel does not connect, and says so.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: &ClientTls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Returns the handle of [`tls`](Self::tls), or that of a settings file, to reload its files.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_handle(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }
}

impl ChannelBuilder {
    /// Sets credentials, such as a token, that are added to the metadata of every call.
    ///
    /// Such a channel makes encrypted connections only, where they leave the host: it needs `tls`,
    /// and does not use RDMA, as with [`require_encryption`](Self::require_encryption).
    /// [`allow_unencrypted_credentials`](Self::allow_unencrypted_credentials) lifts that.
    pub fn call_credentials(mut self, credentials: impl CallCredentials) -> Self {
        self.credentials = Credentials::new(credentials);
        self
    }

    /// Sets whether calls may carry [`call_credentials`](Self::call_credentials) over connections
    /// that are not encrypted, where anyone on the way can read and use them; off by default.
    pub fn allow_unencrypted_credentials(mut self, are_allowed: bool) -> Self {
        self.are_credentials_shown = are_allowed;
        self
    }
}

#[cfg(feature = "settings")]
impl ChannelBuilder {
    /// The same builder with TLS, or without it.
    pub(crate) fn set_tls(mut self, tls: Option<ClientTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Why the channel could not connect, by what is asked of its encryption.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let encryption = self.encryption();
        match &self.address {
            Address::List(addresses) => addresses.iter().find_map(|it| encryption.refusal(it)),
            address => encryption.refusal(address),
        }
    }
}
