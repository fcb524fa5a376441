//! What values of keys are checked for that have no type of their own.

use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::settings::{check_count, check_period, check_timeout};
use rpc_transport_tcp::ProxyNetworks;

/// A value that every value of its type is right for.
pub(super) fn any<T>(_: &T) -> Result<(), InvalidSetting> {
    Ok(())
}

/// A duration in which something has to happen.
pub(super) fn timeout(period: Duration) -> Result<(), InvalidSetting> {
    check_timeout("timeout", period)
}

/// A duration in which something may go on; zero ends it at once.
pub(super) fn period(period: Duration) -> Result<(), InvalidSetting> {
    check_period("period", period)
}

/// Origins of pages.
#[cfg(feature = "grpc")]
pub(super) fn web_origins(origins: &[String]) -> Result<(), InvalidSetting> {
    rpc_transport_grpc::WebOrigins::new(origins).map(drop)
}

/// Origins of pages, which a server without gRPC refuses: a file may have other programs' servers.
#[cfg(not(feature = "grpc"))]
pub(super) fn web_origins(origins: &[String]) -> Result<(), InvalidSetting> {
    any(&origins)
}

/// Networks of proxies.
pub(super) fn proxy_networks(networks: &[String]) -> Result<(), InvalidSetting> {
    ProxyNetworks::new(networks).map(drop)
}

/// A count that has to be one at least.
pub(super) fn some(count: impl Into<u64>) -> Result<(), InvalidSetting> {
    check_count("count", usize::try_from(count.into()).unwrap_or(usize::MAX))
}
