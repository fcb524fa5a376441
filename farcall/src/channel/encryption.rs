//! The requirements on the encryption of a channel's connections, and their consequences.

use std::str::FromStr;
use std::sync::Arc;

use http::uri::Authority;
use rpc_core::connect::{Upgrade, UpgradePolicy};
use rpc_transport_tcp::TcpConnector;

use crate::Address;
use crate::rdma::{Rdma, Refusal};
use crate::resolve::{CustomSchemes, Scheme};
use crate::tls::{self, ClientTls};

/// The name that the certificates of a name's servers are for: `inventory.example` of
/// `inventory.example.`, and of `_rpc._tcp.inventory.example`, which has SRV records.
fn host_of(name: &str) -> &str {
    let mut host = name.trim_end_matches('.');
    while let Some((_, rest)) = host.split_once('.').filter(|_| host.starts_with('_')) {
        host = rest;
    }
    host
}

/// A name that stands for all servers of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceName {
    /// The name that the servers' certificates are for.
    host: String,
    /// The authority of requests over HTTP/2, as gRPC's clients have it: proxies choose by it.
    /// `None` where the name cannot be one.
    authority: Option<String>,
}

impl ServiceName {
    /// The name of the servers of `address`, if they have one.
    pub(super) fn new(address: &Address, schemes: &CustomSchemes) -> Option<Self> {
        if let Address::Dns(name) = address {
            let host = host_of(&name.name).to_owned();
            let authority = match name.port {
                Some(port) => format!("{host}:{port}"),
                None => host.clone(),
            };
            return Some(Self { host, authority: Some(authority) });
        }
        // A registry tells addresses, for which no certificate is issued.
        schemes.service_name(address).map(|name| {
            let host = match name.rsplit_once(':') {
                Some((host, port)) if port.parse::<u16>().is_ok() => host,
                _ => &name,
            };
            let authority = Authority::from_str(&name).ok().map(|it| it.to_string());
            Self { host: host_of(host).to_owned(), authority }
        })
    }
}

/// The setting that requires encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredBy {
    /// `require_encryption`.
    Setting,
    /// Calls carry credentials.
    Credentials,
}

/// The requirements on the encryption of a channel's connections.
#[derive(Debug, Clone)]
pub(super) struct Encryption {
    tls: Option<ClientTls>,
    required_by: Option<RequiredBy>,
    /// The name that stands for all servers of the channel, if it has one.
    name: Option<ServiceName>,
}

impl Encryption {
    /// For a channel to the servers of a name, or to others.
    pub(super) fn new(
        required_by: Option<RequiredBy>,
        tls: Option<ClientTls>,
        name: Option<ServiceName>,
    ) -> Self {
        Self { tls, required_by, name }
    }

    /// The authority of requests over HTTP/2 to the server at `authority`.
    #[cfg(feature = "grpc")]
    pub(super) fn request_authority<'a>(&'a self, authority: &'a str) -> &'a str {
        self.name.as_ref().and_then(|name| name.authority.as_deref()).unwrap_or(authority)
    }

    /// The connector with TLS around its connections, if they are to have it.
    pub(super) fn apply(&self, connector: TcpConnector) -> TcpConnector {
        let host = self.name.as_ref().map(|name| &*name.host);
        tls::connector(connector, self.tls.as_ref(), host)
    }

    /// Returns the path that a connection to `address` takes.
    pub(super) fn policy_of(&self, address: &Address, rdma: Option<&Rdma>) -> UpgradePolicy {
        let upgrade = |rdma: &Rdma| -> Arc<dyn Upgrade> {
            match self.required_by {
                Some(RequiredBy::Setting) => Arc::new(Refusal::by_setting()),
                Some(RequiredBy::Credentials) => Arc::new(Refusal::for_credentials()),
                None => rdma.upgrade(),
            }
        };
        match (address, rdma) {
            (Address::Auto(_), Some(rdma)) => UpgradePolicy::Prefer(vec![upgrade(rdma)]),
            (Address::Rdma(_), Some(rdma)) => UpgradePolicy::Require(upgrade(rdma)),
            _ => UpgradePolicy::Never,
        }
    }

    /// Why there can be no connection to `address`.
    pub(super) fn refusal(&self, address: &Address) -> Option<&'static str> {
        let is_local = address.is_local();
        match (&self.tls, self.required_by) {
            (Some(_), _) if is_local => {
                Some("calls there do not leave the host and have no TLS: remove `tls`")
            }
            // Sent in the clear, it would not be what was asked for.
            (Some(_), _) if address.scheme() == Some(Scheme::Grpc) => {
                Some("grpc:// has no TLS: write grpcs://, or remove `tls`")
            }
            (None, _) if address.scheme() == Some(Scheme::Grpcs) => {
                Some("grpcs:// needs TLS: set `tls` on the channel (feature `tls`)")
            }
            (None, Some(RequiredBy::Setting)) if !is_local => {
                Some("require_encryption is set, but the channel has no `tls`")
            }
            (None, Some(RequiredBy::Credentials)) if !is_local => Some(
                "calls carry credentials, but the channel has no `tls`: set it, or \
                 allow_unencrypted_credentials",
            ),
            _ => None,
        }
    }

    /// Why streams that the program opens itself cannot carry the channel.
    pub(super) fn stream_refusal(&self) -> Option<&'static str> {
        (self.tls.is_some() || self.required_by.is_some()).then_some(
            "farcall cannot encrypt streams that the program opens: remove `tls` and \
             require_encryption, and set allow_unencrypted_credentials if calls carry credentials",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::{CustomScheme, StaticEndpoints};

    fn schemes() -> CustomSchemes {
        let scheme = CustomScheme::new("found", |_| Ok(StaticEndpoints::new([])));
        let mut schemes = CustomSchemes::default();
        schemes.register(scheme.with_service_name(|address| Some(address.rest.clone())));
        schemes
    }

    #[test]
    fn requests_to_the_servers_of_a_name_name_it() {
        for (address, host, authority) in [
            ("dns+grpc:///a.example.:50051", "a.example", Some("a.example:50051")),
            ("dns+grpc:///a.example", "a.example", Some("a.example")),
            ("found+grpc://a.shop:7000", "a.shop", Some("a.shop:7000")),
            ("found+grpc://shop/a:v2", "shop/a:v2", None),
        ] {
            let name = ServiceName::new(&address.parse().unwrap(), &schemes()).unwrap();
            assert_eq!((&*name.host, name.authority.as_deref()), (host, authority), "{address}");
        }
        for address in ["grpc://a:1,b:1", "unregistered+grpc://a:1"] {
            assert_eq!(ServiceName::new(&address.parse().unwrap(), &schemes()), None);
        }
    }

    #[test]
    fn a_name_of_servers_with_tls_needs_tls() {
        for address in ["dns+grpcs:///a:1", "etcd+grpcs:///a", "xds+grpcs:///a", "grpcs://a:1"] {
            let address = address.parse().unwrap();
            let refusal = Encryption::new(None, None, None).refusal(&address);
            assert!(refusal.is_some_and(|it| it.starts_with("grpcs:// needs TLS")), "{address}");
        }
        let plain = "dns+grpc:///a:1".parse().unwrap();
        assert_eq!(Encryption::new(None, None, None).refusal(&plain), None);
    }

    #[test]
    fn the_servers_of_a_name_have_certificates_for_that_name() {
        assert_eq!(host_of("inventory.example"), "inventory.example");
        assert_eq!(host_of("inventory.example."), "inventory.example");
        assert_eq!(host_of("_rpc._tcp.inventory.example"), "inventory.example");
    }
}
