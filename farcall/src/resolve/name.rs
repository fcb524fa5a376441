//! The names of targets that stand for several servers: of DNS, of etcd and of xDS.

use std::borrow::Cow;
use std::fmt;

/// By which path the servers that a name stands for are called.
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
}

impl Scheme {
    /// The scheme of a server's address.
    #[must_use]
    pub fn of_address(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }

    /// The scheme of a name's address.
    fn of_name(self) -> &'static str {
        match self {
            Self::Auto => "dns",
            Self::Rdma => "dns+rdma",
            Self::Tcp => "dns+tcp",
        }
    }

    /// The scheme of an address in etcd.
    fn of_etcd(self) -> &'static str {
        match self {
            Self::Auto => "etcd",
            Self::Rdma => "etcd+rdma",
            Self::Tcp => "etcd+tcp",
        }
    }

    /// The scheme of an address that a control plane resolves.
    fn of_xds(self) -> &'static str {
        match self {
            Self::Auto => "xds",
            Self::Rdma => "xds+rdma",
            Self::Tcp => "xds+tcp",
        }
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
    /// By which path the servers are called.
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
        let schemes = [Scheme::Auto, Scheme::Rdma, Scheme::Tcp];
        let scheme = schemes.into_iter().find(|it| it.of_name() == scheme)?;
        Some(Self::parse_name(scheme, rest))
    }

    fn parse_name(scheme: Scheme, rest: &str) -> Result<Self, Cow<'static, str>> {
        let prefix = scheme.of_name();
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
        write!(f, "{}:///{}", self.scheme.of_name(), self.name)?;
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
    /// By which path the servers are called.
    pub scheme: Scheme,
}

impl EtcdName {
    /// Reads what follows the `://` of an address whose scheme is `scheme`; `None` where the scheme
    /// is not one of etcd.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let schemes = [Scheme::Auto, Scheme::Rdma, Scheme::Tcp];
        let scheme = schemes.into_iter().find(|it| it.of_etcd() == scheme)?;
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
        write!(f, "{}://{}{prefix}", self.scheme.of_etcd(), self.endpoint)
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
    /// By which path the servers are called.
    pub scheme: Scheme,
}

impl XdsName {
    /// Reads what follows the `://` of an address whose scheme is `scheme`; `None` where the scheme
    /// is not one of xDS.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let schemes = [Scheme::Auto, Scheme::Rdma, Scheme::Tcp];
        let scheme = schemes.into_iter().find(|it| it.of_xds() == scheme)?;
        Some(Self::parse_name(scheme, rest))
    }

    /// The name without its port: what a server's certificate has to be for.
    pub(crate) fn host(&self) -> &str {
        match self.name.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            _ => &self.name,
        }
    }

    fn parse_name(scheme: Scheme, rest: &str) -> Result<Self, Cow<'static, str>> {
        let prefix = scheme.of_xds();
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
        write!(f, "{}://{control_plane}/{}", self.scheme.of_xds(), self.name)
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
