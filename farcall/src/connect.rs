//! From an address to a channel.

use rpc_core::Channel;
use rpc_core::connect::{ConnectError, UpgradePolicy};
use rpc_core::inproc::InprocConnector;
use rpc_transport_tcp::{TcpConnector, UnixConnector};

use crate::{Address, AddressError, Config};

/// Connects to `address` under the default rules.
///
/// # Errors
///
/// When the address means nothing, nobody answers, the handshake fails, or RDMA is required and
/// not possible.
///
/// # Cancel safety
///
/// Cancelled, nothing is left behind.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), farcall::ConnectError> {
/// let channel = farcall::connect("auto://10.0.0.1:7000").await?;
/// if let Some(reason) = channel.info().and_then(|info| info.fallback) {
///     eprintln!("not on RDMA: {reason}");
/// }
/// # Ok(())
/// # }
/// ```
pub async fn connect(address: &str) -> Result<Channel, ConnectError> {
    connect_with(address, &Config::default()).await
}

/// Connects to `address` under the rules of `config`.
///
/// # Errors
///
/// As [`connect`].
///
/// # Cancel safety
///
/// As [`connect`].
pub async fn connect_with(address: &str, config: &Config) -> Result<Channel, ConnectError> {
    let parsed = address.parse().map_err(|error: AddressError| ConnectError::Address {
        address: address.to_owned(),
        reason: error.into_reason(),
    })?;
    match parsed {
        Address::Inproc(name) => Channel::connect(inproc(name, config)).await,
        Address::Unix(name) => Channel::connect(unix(name, config)).await,
        other => Channel::connect(tcp(other, config)).await,
    }
}

/// A channel that connects to `address` at its first call.
#[must_use]
pub fn channel(address: Address, config: &Config) -> Channel {
    match address {
        Address::Inproc(name) => Channel::new(inproc(name, config)),
        Address::Unix(name) => Channel::new(unix(name, config)),
        other => Channel::new(tcp(other, config)),
    }
}

fn inproc(name: String, config: &Config) -> InprocConnector {
    InprocConnector::new(name, config.client(UpgradePolicy::Never))
}

fn unix(name: String, config: &Config) -> UnixConnector {
    UnixConnector::new(name, config.client(UpgradePolicy::Never))
}

fn tcp(address: Address, config: &Config) -> TcpConnector {
    let (authority, policy) = match address {
        Address::Auto(authority) => (authority, UpgradePolicy::Prefer(vec![config.rdma()])),
        Address::Rdma(authority) => (authority, UpgradePolicy::Require(config.rdma())),
        Address::Tcp(authority) | Address::Unix(authority) | Address::Inproc(authority) => {
            (authority, UpgradePolicy::Never)
        }
    };
    TcpConnector::new(authority, config.client(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_none_is_named_once_and_with_its_cure() {
        let error = connect("http://10.0.0.1:7000").await.unwrap_err().to_string();
        let words = "cannot connect to http://10.0.0.1:7000: tonic's http:// is tcp:// here: \
                     tcp://10.0.0.1:7000";
        assert_eq!(error, words);
    }

    #[tokio::test]
    async fn a_name_without_a_server_is_said_to_have_none() {
        let error = connect("inproc://none").await.unwrap_err().to_string();
        let words = "cannot connect to inproc://none: no server in this process listens there";
        assert_eq!(error, words);
    }
}
