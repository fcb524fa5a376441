//! Addresses that stand for several servers: names of DNS, and those of schemes that the program
//! registers.

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

    /// Returns the scheme of a server's address.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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

    /// The scheme of an address whose servers `registry` tells, such as `dns`.
    fn with_registry(self, registry: &str) -> String {
        match self {
            Self::Auto => registry.to_owned(),
            scheme => format!("{registry}+{}", scheme.as_str()),
        }
    }

    /// Reads the scheme of an address; `None` where it is not one of `registry`.
    fn parse(registry: &str, scheme: &str) -> Option<Result<Self, Cow<'static, str>>> {
        let Some((_, path)) = scheme.split_once('+').filter(|(it, _)| *it == registry) else {
            return (scheme == registry).then_some(Ok(Self::Auto));
        };
        let named = Self::NAMED.into_iter().find(|it| it.as_str() == path);
        Some(named.ok_or_else(|| {
            format!(
                "write rdma, tcp, grpc or grpcs after {registry}+; {registry}:// alone uses RDMA \
                 when both sides can, otherwise TCP"
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
                "{prefix}:// needs a third slash before the name, since the system chooses the \
                 name server: write {prefix}:///{name}"
            )
            .into());
        };
        let (name, port) = match name.rsplit_once(':') {
            Some((name, port)) => {
                let port = port.parse().map_err(|_| "the port is not between 0 and 65535")?;
                (name, Some(port))
            }
            None => (name, None),
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_of_name) {
            return Err(format!(
                "{prefix}:/// needs a name, such as \
                                {prefix}:///inventory:7000"
            )
            .into());
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

/// Schemes of farcall's own, and those that it refuses with a reason.
const OWN: [&str; 10] =
    ["auto", "rdma", "tcp", "unix", "inproc", "grpc", "grpcs", "dns", "http", "https"];

/// Returns true if the part of `scheme` before a plus sign is a scheme of farcall's own.
pub(crate) fn is_own(scheme: &str) -> bool {
    OWN.contains(&scheme.split('+').next().unwrap_or(scheme))
}

/// Returns true if `name` can be a scheme by RFC 3986. A plus sign is left to the protocol of
/// servers.
pub(crate) fn is_scheme_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_allowed)
}

/// An address of a scheme that the program registers: `consul://rest`, or `consul+tcp://rest`.
///
/// It stands for several servers, which the resolver of its [`CustomScheme`] finds.
///
/// [`CustomScheme`]: crate::resolve::CustomScheme
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CustomAddress {
    /// Name of the scheme in lower case, without a plus sign: `consul`.
    pub name: String,
    /// The protocol and path by which the servers are called.
    pub scheme: Scheme,
    /// Text behind `://`, as it was written.
    pub rest: String,
}

impl CustomAddress {
    /// Reads an address whose scheme, in lower case, is none of farcall's own.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Result<Self, Cow<'static, str>> {
        let (name, path) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_path = Scheme::NAMED.into_iter().any(|it| it.as_str() == path);
        if is_own(name) && is_scheme_name(path) && !is_path {
            return Err(format!("write {path} before the plus sign: {path}+{name}://").into());
        }
        let scheme = Scheme::parse(name, scheme).filter(|_| !is_own(name) && is_scheme_name(name));
        let scheme = scheme.ok_or(UNKNOWN_SCHEME)??;
        if rest.chars().any(char::is_control) {
            return Err("the name has a control character".into());
        }
        Ok(Self { name: name.to_owned(), scheme, rest: rest.to_owned() })
    }
}

/// The reason of an address whose scheme is neither farcall's nor a name that can be registered.
pub(crate) const UNKNOWN_SCHEME: &str =
    "unknown scheme: use auto, rdma, tcp, unix, inproc, grpc, grpcs, dns, etcd or xds";

impl fmt::Display for CustomAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.with_registry(&self.name), self.rest)
    }
}
