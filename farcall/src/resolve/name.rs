//! The names of targets that DNS resolves.

use std::borrow::Cow;
use std::fmt;

/// By which path the servers that a name stands for are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Scheme {
    /// RDMA where both sides can, otherwise TCP: `auto://`, `dns:///`.
    #[default]
    Auto,
    /// RDMA or an error: `rdma://`, `dns+rdma:///`.
    Rdma,
    /// TCP: `tcp://`, `dns+tcp:///`.
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
