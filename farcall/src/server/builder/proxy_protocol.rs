//! Proxies that say who their clients are.

use rpc_core::settings::expect_valid;
use rpc_transport_tcp::ProxyNetworks;

use super::ServerBuilder;

impl ServerBuilder {
    /// Accepts the PROXY protocol, version 1 and 2, from these networks; from none by default. Each
    /// is written `10.0.0.0/8`, `2001:db8::/32`, or as an address alone. It holds for every
    /// connection over TCP, whatever is spoken behind the header: farcall, gRPC, TLS.
    ///
    /// A load balancer that passes connections on is the peer of all of them. With its header the
    /// client's address takes its place: in limits by address, in the log and in
    /// [`PeerInfo`](crate::PeerInfo). A header without a client's address, as that of a health
    /// check, leaves the load balancer the peer.
    ///
    /// A connection from these networks has to begin with a header, and a connection from elsewhere
    /// must not: it is refused otherwise, since any client could name any address. The header has
    /// to come within [`handshake_timeout`](Self::handshake_timeout). Name the addresses of the
    /// load balancers alone. At `unix://` and `inproc://` addresses the server does not start with
    /// this setting, and neither does it for byte streams that the program accepts itself.
    ///
    /// # Panics
    ///
    /// Panics if a text is neither a network nor an address.
    ///
    /// # Examples
    ///
    /// ```
    /// let server = farcall::Server::builder().proxy_protocol(["10.0.0.0/24"]);
    /// # drop(server);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn proxy_protocol<T: Into<String>>(mut self, from: impl IntoIterator<Item = T>) -> Self {
        let proxies = ProxyNetworks::new(from);
        expect_valid(proxies.map(|proxies| self.proxies = Some(proxies.as_slice().to_vec())));
        self
    }

    /// The networks whose connections begin with a PROXY header.
    #[must_use]
    pub fn get_proxy_protocol(&self) -> &[String] {
        self.proxies.as_deref().unwrap_or_else(|| self.config.proxy_protocol())
    }

    /// Why the server could not listen at `address` with the proxies that it accepts.
    #[cfg(feature = "settings")]
    pub(crate) fn refusal_of_proxies(&self, address: &crate::Address) -> Option<&'static str> {
        let are_named = !self.get_proxy_protocol().is_empty();
        (are_named && address.is_local()).then_some(crate::server::listener::PROXIES_WITHOUT_TCP)
    }
}
