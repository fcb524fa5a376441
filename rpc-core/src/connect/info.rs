//! Descriptions of connections.

use crate::Negotiated;
use crate::transport::{Addresses, TransportStats};

/// What a connection says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The transport that carries its calls, for example `tcp` or `rdma`.
    pub transport: &'static str,
    /// Its two ends.
    pub addresses: Addresses,
    /// Whether it moved from the path that it started on to an upgraded one.
    pub is_upgraded: bool,
    /// Whether its client wanted an upgraded path, as `auto://` does.
    pub wanted_upgrade: bool,
    /// Why it did not move to an upgraded path. Never absent where one was wanted and is not in
    /// use.
    pub fallback: Option<String>,
    /// Whether that reason can pass while both processes run. The channel then tries again in the
    /// background.
    pub fallback_can_pass: bool,
    /// Set where the reason is that one side has no device at all, which is no fault.
    #[doc(hidden)]
    pub is_without_device: bool,
    /// Which directions may have compressed messages: none over RDMA.
    pub compression: Negotiated,
    /// The calls in flight on it at this moment.
    pub calls_in_flight: usize,
    /// What its transport has counted.
    pub stats: TransportStats,
}

impl ConnectionInfo {
    /// What a connection of another protocol says of itself.
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        transport: &'static str,
        addresses: Addresses,
        calls_in_flight: usize,
        stats: TransportStats,
    ) -> Self {
        Self {
            transport,
            addresses,
            is_upgraded: false,
            wanted_upgrade: false,
            fallback: None,
            fallback_can_pass: false,
            is_without_device: false,
            compression: Negotiated::default(),
            calls_in_flight,
            stats,
        }
    }
}
