//! What the settings of a builder are: `get_` and the name of the setter, as with tonic's
//! `Endpoint`. What the builder does not say is what its [`Config`] has.

use std::time::Duration;

use rpc_transport_tcp::SocketAccess;

use super::ServerBuilder;
use crate::{Compression, Config, Keepalive, Limits, MethodCompression, PeerExtensions};

impl ServerBuilder {
    /// Returns the config with the settings of this builder that the core does not have.
    pub(super) fn resolved_config(&self) -> Config {
        let access = SocketAccess {
            mode: self.get_socket_mode(),
            owner: self.get_socket_owner().map(str::to_owned),
        };
        let config = self.config.clone();
        let config = config
            .with_log_failed_calls(self.get_log_failed_calls())
            .with_rdma_required(self.get_rdma_required())
            .with_socket_access(access)
            .with_require_encryption(self.get_require_encryption())
            .with_proxy_protocol(self.get_proxy_protocol().to_vec());
        #[cfg(feature = "grpc")]
        let config = config.with_grpc_web_origins(self.get_grpc_web_origins().to_vec());
        config
    }

    /// The rules of [`config`](Self::config), without the builder's own settings.
    #[must_use]
    pub fn get_config(&self) -> &Config {
        &self.config
    }

    /// The handle of [`rdma`](Self::rdma); `None` where the server uses the process-wide
    /// one.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn get_rdma(&self) -> Option<&crate::Rdma> {
        self.rdma.as_ref()
    }

    /// What [`limits`](Self::limits) and [`max_message_len`](Self::max_message_len) have made.
    #[must_use]
    pub fn get_limits(&self) -> Limits {
        let limits = self.core.get_limits().unwrap_or_else(|| self.config.limits());
        self.max_message_len.map_or(limits, |bytes| limits.with_max_message_len(bytes))
    }

    /// What is done with compressed messages.
    #[must_use]
    pub fn get_compression(&self) -> Compression {
        self.core.get_compression().unwrap_or_else(|| self.config.compression())
    }

    /// From which length on responses are compressed, by method or by service.
    #[must_use]
    pub fn get_method_compression(&self) -> &MethodCompression {
        self.core.get_method_compression()
    }

    /// The longest request message accepted, in bytes.
    #[must_use]
    pub fn get_max_message_len(&self) -> u64 {
        self.get_limits().max_message_len
    }

    /// The bound on a client's handshake.
    #[must_use]
    pub fn get_handshake_timeout(&self) -> Duration {
        self.core.get_handshake_timeout().unwrap_or_else(|| self.config.handshake_timeout())
    }

    /// How a client that is gone is found, if at all.
    #[must_use]
    pub fn get_keepalive(&self) -> Option<Keepalive> {
        self.core.get_keepalive().unwrap_or_else(|| self.config.keepalive())
    }

    /// How long a client may stand still before its connection is ended, if it is at all.
    #[must_use]
    pub fn get_progress_timeout(&self) -> Option<Duration> {
        self.core.get_progress_timeout().unwrap_or_else(|| self.config.progress_timeout())
    }

    /// Whether each call that fails has a line in the log.
    #[must_use]
    pub fn get_log_failed_calls(&self) -> bool {
        self.log_failed_calls.unwrap_or_else(|| self.config.log_failed_calls())
    }

    /// Whether the server fails to start at an `rdma://` address where RDMA is impossible.
    #[must_use]
    pub fn get_rdma_required(&self) -> bool {
        self.rdma_required.unwrap_or_else(|| self.config.rdma_required())
    }

    /// How long a unary call may take on this server, if that is bounded.
    #[must_use]
    pub fn get_unary_timeout(&self) -> Option<Duration> {
        self.core.get_unary_timeout()
    }

    /// Whether every call has a line in the log when it ends.
    #[must_use]
    pub fn get_access_log(&self) -> bool {
        self.core.get_access_log()
    }

    /// What of the connection every request's extensions say.
    #[must_use]
    pub fn get_peer_extensions(&self) -> PeerExtensions {
        self.core.get_peer_extensions()
    }

    /// How long calls in flight may take when the server shuts down.
    #[must_use]
    pub fn get_drain_timeout(&self) -> Duration {
        self.core.get_drain_timeout()
    }

    /// After how long without a call a connection ends, if it does.
    #[must_use]
    pub fn get_idle_timeout(&self) -> Option<Duration> {
        self.core.get_idle_timeout()
    }

    /// After how long a connection ends in any case, if it does.
    #[must_use]
    pub fn get_max_connection_age(&self) -> Option<Duration> {
        self.core.get_max_connection_age()
    }

    /// How long calls may go on then; `None` until they end.
    #[must_use]
    pub fn get_max_connection_age_grace(&self) -> Option<Duration> {
        self.core.get_max_connection_age_grace()
    }

    /// The most calls that run at a time.
    #[must_use]
    pub fn get_max_calls(&self) -> usize {
        self.core.get_max_calls()
    }

    /// The most of these calls for one address; `None` for a share of what is free.
    #[must_use]
    pub fn get_max_calls_per_peer(&self) -> Option<usize> {
        self.core.get_max_calls_per_peer()
    }

    /// The most connections at a time.
    #[must_use]
    pub fn get_max_connections(&self) -> usize {
        self.core.get_max_connections()
    }

    /// The most of these connections for one address; `None` for a share of what is free.
    #[must_use]
    pub fn get_max_connections_per_peer(&self) -> Option<usize> {
        self.core.get_max_connections_per_peer()
    }

    /// The most bytes of memory that clients can make the server keep; `None` for a quarter of what
    /// the process may use.
    #[must_use]
    pub fn get_max_memory(&self) -> Option<u64> {
        self.core.get_max_memory()
    }
}

#[cfg(test)]
mod tests {
    use crate::Server;

    use super::*;

    #[test]
    fn a_builders_word_goes_before_its_configs_whichever_is_first() {
        let limits = Limits::new().with_max_calls(7).with_max_message_len(1);
        let config = Config::default().with_limits(limits).with_rdma_required(false);
        let builder = Server::builder().max_message_len(64 << 20).config(&config);
        assert_eq!(builder.get_limits(), limits.with_max_message_len(64 << 20));
        assert!(!builder.get_rdma_required() && builder.get_log_failed_calls());
        let builder = builder.limits(Limits::new()).handshake_timeout(Duration::from_secs(3));
        assert_eq!(builder.get_limits(), Limits::new());
        assert_eq!(builder.get_handshake_timeout(), Duration::from_secs(3));
        assert_eq!(builder.get_keepalive(), config.keepalive());
    }

    #[cfg(feature = "grpc")]
    #[test]
    fn origins_of_a_builder_go_before_its_configs() {
        let config = Config::default().with_grpc_web_origins(["https://app.example"]);
        let builder = Server::builder().config(&config);
        assert_eq!(builder.get_grpc_web_origins(), ["https://app.example"]);
        let none: [&str; 0] = [];
        assert_eq!(builder.grpc_web_origins(none).get_grpc_web_origins(), none);
    }

    #[test]
    fn every_setting_can_be_read() {
        let second = Duration::from_secs(1);
        let builder = Server::builder()
            .unary_timeout(second)
            .access_log(true)
            .drain_timeout(second * 2)
            .idle_timeout(second * 3)
            .max_connection_age(second * 4)
            .max_connection_age_grace(second * 5)
            .progress_timeout(None)
            .keepalive(None)
            .max_calls(6)
            .max_calls_per_peer(7)
            .max_connections(8)
            .max_connections_per_peer(9)
            .max_memory(1 << 20);
        let times = [
            builder.get_unary_timeout(),
            Some(builder.get_drain_timeout()),
            builder.get_idle_timeout(),
            builder.get_max_connection_age(),
            builder.get_max_connection_age_grace(),
        ];
        assert_eq!(times, [1, 2, 3, 4, 5].map(|count| Some(second * count)));
        let counts = [
            Some(builder.get_max_calls()),
            builder.get_max_calls_per_peer(),
            Some(builder.get_max_connections()),
            builder.get_max_connections_per_peer(),
        ];
        assert_eq!(counts, [6, 7, 8, 9].map(Some));
        assert_eq!(builder.get_max_memory(), Some(1 << 20));
        assert_eq!((builder.get_progress_timeout(), builder.get_keepalive()), (None, None));
        assert!(builder.get_access_log());
        #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
        assert!(builder.get_rdma().is_none());
    }
}
