//! Ranges that several keys have, and checks that need more than a range.

use std::ops::{RangeInclusive, RangeToInclusive};
use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::settings::{MAX_DURATION, MIN_TIMEOUT};
use rpc_transport_tcp::ProxyNetworks;

/// Durations in which something has to happen.
pub(super) const TIMEOUT: RangeInclusive<Duration> = MIN_TIMEOUT..=MAX_DURATION;

/// Durations in which something may go on; zero ends it at once.
pub(super) const PERIOD: RangeToInclusive<Duration> = ..=MAX_DURATION;

/// The reason for counts of one at least.
pub(super) const SERVED: &str = "nothing would be served";

/// Origins of pages.
#[cfg(feature = "grpc")]
pub(super) fn web_origins(origins: &[String]) -> Result<(), InvalidSetting> {
    rpc_transport_grpc::WebOrigins::new(origins).map(drop)
}

/// Origins of pages, which a server without gRPC refuses: a file may have other programs' servers.
#[cfg(not(feature = "grpc"))]
pub(super) fn web_origins(_: &[String]) -> Result<(), InvalidSetting> {
    Ok(())
}

/// Networks of proxies.
pub(super) fn proxy_networks(networks: &[String]) -> Result<(), InvalidSetting> {
    ProxyNetworks::new(networks).map(drop)
}
