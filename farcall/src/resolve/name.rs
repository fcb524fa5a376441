//! The names of targets that stand for several servers: of DNS, of etcd and of xDS.

use std::borrow::Cow;
use std::fmt;

/// The protocol and path by which the servers that a name stands for are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Scheme {
    /// RDMA where both sides can, otherwise TCP: `auto://`, `dns:///`, `etcd://`,
    /// `xds:///`.
    #[default]
    Auto,
    /// RDMA or an error: `rdma://`, `dns+rdma:///`, `etcd+rdma://`,
    /// `xds+rdma:///`.
    Rdma,
    /// TCP: `tcp://`, `dns+tcp:///`, `etcd+tcp://`, `xds+tcp:///`.
    Tcp,
    /// gRPC over HTTP/2, without TLS: `grpc://`, `dns+grpc:///`, `etcd+grpc://`,
    /// `xds+grpc:///`. The feature `grpc` has it.
    Grpc,
    /// gRPC over HTTP/2 with TLS: `grpcs://`, `dns+grpcs:///`, `etcd+grpcs://`,
    /// `xds+grpcs:///`. The features `grpc` and `tls` have it.
    Grpcs,
}

impl Scheme {
    /// The schemes that stand behind a registry's name and a plus sign.
    const NAMED: [Self; 4] = [Self::Rdma, Self::Tcp, Self::Grpc, Self::Grpcs];

    /// The scheme of a server's address.
    #[must_use]
    pub fn of_address(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    /// Returns true for the protocol of gRPC.
    #[cfg(any(feature = "dns", feature = "settings"))]
    pub(crate) fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }

    /// The scheme of an address whose servers `registry` tells: `dns`, `etcd` or `xds`.
    fn with_registry(self, registry: &str) -> String {
        match self {
            Self::Auto => registry.to_owned(),
            scheme => format!("{registry}+{}", scheme.of_address()),
        }
    }

    /// Reads the scheme of an address; `None` where it is not one of `registry`.
    fn parse(registry: &str, scheme: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let Some((_, path)) = scheme.split_once('+').filter(|(it, _)| *it == registry) else {
            return (scheme == registry).then_some(Ok(Self::Auto));
        };
        let named = Self::NAMED.into_iter().find(|it| it.of_address() == path);
        Some(named.ok_or_else(|| {
            format!(
                "{registry}+ is followed by rdma, tcp, grpc or grpcs, and {registry}:// alone is \
                 RDMA where both sides can, otherwise TCP"
            )
            .into()
        }))
    }
}

/// A name that stands for several servers: `dns:///name:port`, or `dns:///name` for SRV records,
/// which have ports of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DnsName {
    /// The name.
    pub name: String,
    /// The port of A and AAAA records; `None` for SRV records.
    pub port: Option<u16>,
    /// The protocol and path by which the servers are called.
    pub scheme: Scheme,
}

impl DnsName {
    /// The servers of `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, port: Option<u16>, scheme: Scheme) -> Self {
        Self { name: name.into(), port, scheme }
    }

    /// Reads what follows the `://` of an address whose scheme is `scheme`; `None` where the scheme
    /// is not one of DNS.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let scheme = Scheme::parse("dns", scheme)?;
        Some(scheme.and_then(|scheme| Self::parse_name(scheme, rest)))
    }

    /// The label of SRV records that stands before the name.
    #[cfg(feature = "dns")]
    pub(crate) fn service_label(&self) -> &'static str {
        if self.scheme.is_grpc() { "_grpc._tcp." } else { "_farcall._tcp." }
    }

    fn parse_name(scheme: Scheme, rest: &str) -> Result<Self, Cow<'static, str>> {
        let prefix = scheme.with_registry("dns");
        let Some(name) = rest.strip_prefix('/') else {
            let name = rest.rsplit('/').next().unwrap_or(rest);
            return Err(format!(
                "{prefix}:// is followed by a slash and the name, since the name server is the \
                 system's: write {prefix}:///{name}"
            )
            .into());
        };
        let (name, port) = match name.rsplit_once(':') {
            Some((name, port)) => {
                let port = port.parse().map_err(|_| "its port is not between 0 and 65535")?;
                (name, Some(port))
            }
            None => (name, None),
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_of_name) {
            return Err(format!("{prefix}:/// needs a name, as {prefix}:///inventory:7000").into());
        }
        Ok(Self::new(name, port, scheme))
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:///{}", self.scheme.with_registry("dns"), self.name)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Where etcd listens unless it is told otherwise.
const ETCD_ENDPOINT: &str = "127.0.0.1:2379";

/// A prefix of etcd's keys under which servers register: `etcd://host:port/prefix`, or
/// `etcd:///prefix` for an etcd at port 2379 of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdName {
    /// The host and port of etcd.
    pub endpoint: String,
    /// The prefix, which begins and ends with a slash: `/services/inventory/`.
    pub prefix: String,
    /// The protocol and path by which the servers are called.
    pub scheme: Scheme,
}

impl EtcdName {
    /// Reads what follows the `://` of an address whose scheme is `scheme`; `None` where the scheme
    /// is not one of etcd.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let scheme = match Scheme::parse("etcd", scheme)? {
            Ok(scheme) => scheme,
            Err(reason) => return Some(Err(reason)),
        };
        let (endpoint, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() {
            let words = "etcd:// needs a prefix of keys, as etcd://10.0.0.9:2379/services/shop";
            return Some(Err(words.into()));
        }
        let endpoint = if endpoint.is_empty() { ETCD_ENDPOINT } else { endpoint };
        let (endpoint, prefix) = (endpoint.to_owned(), format!("/{prefix}/"));
        Some(Ok(Self { endpoint, prefix, scheme }))
    }
}

impl fmt::Display for EtcdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix.trim_end_matches('/');
        write!(f, "{}://{}{prefix}", self.scheme.with_registry("etcd"), self.endpoint)
    }
}

/// A service that a control plane knows by xDS: `xds:///name` by the control plane that gRPC's
/// bootstrap file names, or `xds://host:port/name` by the one at `host:port`, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdsName {
    /// The host and port of the control plane; `None` where the bootstrap file names it.
    pub control_plane: Option<String>,
    /// The service, as the control plane calls it: `inventory.shop.svc.cluster.local:7000`.
    pub name: String,
    /// The protocol and path by which the servers are called.
    pub scheme: Scheme,
}

impl XdsName {
    /// Reads what follows the `://` of an address whose scheme is `scheme`; `None` where the scheme
    /// is not one of xDS.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let scheme = Scheme::parse("xds", scheme)?;
        Some(scheme.and_then(|scheme| Self::parse_name(scheme, rest)))
    }

    /// The name without its port: what a server's certificate has to be for.
    pub(crate) fn host(&self) -> &str {
        match self.name.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            _ => &self.name,
        }
    }

    fn parse_name(scheme: Scheme, rest: &str) -> Result<Self, Cow<'static, str>> {
        let prefix = scheme.with_registry("xds");
        let Some((control_plane, name)) = rest.split_once('/') else {
            return Err(format!(
                "{prefix}:// is followed by a slash and the name, or by the host and port of the \
                 control plane before them: write {prefix}:///{rest}"
            )
            .into());
        };
        if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(format!("{prefix}:/// needs a name, as {prefix}:///inventory:7000").into());
        }
        let control_plane = (!control_plane.is_empty()).then(|| control_plane.to_owned());
        Ok(Self { control_plane, name: name.to_owned(), scheme })
    }
}

impl fmt::Display for XdsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control_plane = self.control_plane.as_deref().unwrap_or_default();
        write!(f, "{}://{control_plane}/{}", self.scheme.with_registry("xds"), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_for_a_service_without_its_port() {
        for (rest, host) in [
            ("/inventory.shop:7000", "inventory.shop"),
            ("10.0.0.9:18000/inventory", "inventory"),
            ("/shop/inventory:v2", "shop/inventory:v2"),
        ] {
            let name = XdsName::parse("xds", rest).unwrap().unwrap();
            assert_eq!(name.host(), host);
        }
    }
}
