//! What the settings of a builder are. A setter has the setting's name, so that its getter is
//! `get_` and the name, as with tonic's `Endpoint`. `None` for a listener's settings means that the
//! builder says nothing, and that the listener decides.

use std::time::Duration;

use super::ServerBuilder;
use crate::server::{MethodCompression, PeerExtensions};
use crate::{Compression, Keepalive, Limits};

impl ServerBuilder {
    /// See [`compression`](Self::compression).
    #[must_use]
    pub fn get_compression(&self) -> Option<Compression> {
        self.settings.compression
    }

    /// See [`method_compression`](Self::method_compression).
    #[must_use]
    pub fn get_method_compression(&self) -> &MethodCompression {
        &self.method_compression
    }

    /// See [`limits`](Self::limits).
    #[must_use]
    pub fn get_limits(&self) -> Option<Limits> {
        self.settings.limits
    }

    /// See [`handshake_timeout`](Self::handshake_timeout).
    #[must_use]
    pub fn get_handshake_timeout(&self) -> Option<Duration> {
        self.settings.handshake_timeout
    }

    /// See [`keepalive`](Self::keepalive).
    #[must_use]
    pub fn get_keepalive(&self) -> Option<Option<Keepalive>> {
        self.settings.keepalive
    }

    /// See [`progress_timeout`](Self::progress_timeout).
    #[must_use]
    pub fn get_progress_timeout(&self) -> Option<Option<Duration>> {
        self.settings.progress_timeout
    }

    /// See [`unary_timeout`](Self::unary_timeout).
    #[must_use]
    pub fn get_unary_timeout(&self) -> Option<Duration> {
        self.router.rules.unary_timeout()
    }

    /// See [`access_log`](Self::access_log).
    #[must_use]
    pub fn get_access_log(&self) -> bool {
        self.router.rules.log().access
    }

    /// See [`peer_extensions`](Self::peer_extensions).
    #[must_use]
    pub fn get_peer_extensions(&self) -> PeerExtensions {
        self.router.peer_extensions
    }

    /// See [`drain_timeout`](Self::drain_timeout).
    #[must_use]
    pub fn get_drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    /// See [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub fn get_idle_timeout(&self) -> Option<Duration> {
        self.lifetime.idle_timeout
    }

    /// See [`max_connection_age`](Self::max_connection_age).
    #[must_use]
    pub fn get_max_connection_age(&self) -> Option<Duration> {
        self.lifetime.age_max
    }

    /// See [`max_connection_age_grace`](Self::max_connection_age_grace).
    #[must_use]
    pub fn get_max_connection_age_grace(&self) -> Option<Duration> {
        self.lifetime.age_grace
    }

    /// See [`max_calls`](Self::max_calls).
    #[must_use]
    pub fn get_max_calls(&self) -> usize {
        self.max_calls
    }

    /// See [`max_calls_per_peer`](Self::max_calls_per_peer); `None` for a share of what is free.
    #[must_use]
    pub fn get_max_calls_per_peer(&self) -> Option<usize> {
        self.max_calls_per_peer
    }

    /// See [`max_connections`](Self::max_connections).
    #[must_use]
    pub fn get_max_connections(&self) -> usize {
        self.max_connections
    }

    /// See [`max_connections_per_peer`](Self::max_connections_per_peer); `None` for a share of what
    /// is free.
    #[must_use]
    pub fn get_max_connections_per_peer(&self) -> Option<usize> {
        self.max_connections_per_peer
    }

    /// See [`max_memory`](Self::max_memory); `None` for a quarter of what the process may use.
    #[must_use]
    pub fn get_max_memory(&self) -> Option<u64> {
        self.max_memory
    }
}
