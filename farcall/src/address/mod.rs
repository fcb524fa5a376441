//! Addresses: the path, and the server at its end.

mod name;

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use rpc_core::connect::{ConnectError, ConnectFault};
use thiserror::Error;

pub use name::{CustomAddress, DnsName, Scheme};
pub(crate) use name::{UNKNOWN_SCHEME, is_own, is_scheme_name};

/// An address to listen on or to connect to. Its scheme says which paths calls may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `auto://host:port`: RDMA when both sides can, otherwise TCP.
    Auto(String),
    /// `rdma://host:port`: RDMA or an error.
    Rdma(String),
    /// `tcp://host:port`.
    Tcp(String),
    /// `unix:///path`, `unix://./relative/path` or, for an abstract name, `unix://@name`: a Unix
    /// socket.
    Unix(String),
    /// `inproc://name`: inside the process.
    Inproc(String),
    /// `grpc://host:port`: a server of gRPC over HTTP/2, without TLS. A channel's address alone;
    /// the feature `grpc` has it.
    Grpc(String),
    /// `grpcs://host:port`: the same with TLS, which the channel's `tls` sets. A channel's address
    /// alone; the features `grpc` and `tls` have it.
    Grpcs(String),
    /// `dns:///name:port`: every server that a name stands for. A channel's address alone.
    Dns(DnsName),
    /// An address of a scheme that the program registers
    /// ([`ChannelBuilder::scheme`](crate::ChannelBuilder::scheme)), as `etcd://host:port/prefix`:
    /// every server that its resolver finds. A channel's address alone.
    Custom(CustomAddress),
    /// `tcp://a:7000,b:7000`: several servers, at least two. A channel's address alone.
    List(Vec<Self>),
}

/// Text that is not an address, and what to write in its place where that can be told.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not an address: {reason}")]
pub struct AddressError {
    text: String,
    reason: Cow<'static, str>,
}

rpc_core::readable_debug!(AddressError);

impl AddressError {
    /// An error that says why `text` is not an address.
    #[must_use]
    pub fn new(text: impl Into<String>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), reason: reason.into() }
    }

    /// Returns the reason without the text.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<AddressError> for ConnectError {
    fn from(AddressError { text, reason }: AddressError) -> Self {
        ConnectFault::Address { address: text, reason: reason.into_owned() }.into()
    }
}

/// A value that converts to an address: text, an [`Address`], a `SocketAddr`, or a `Uri`.
///
/// A `SocketAddr` has no scheme, and is `auto://`: RDMA when both sides can, otherwise TCP. Text
/// says its scheme.
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
/// use std::net::{Ipv4Addr, SocketAddr};
///
/// let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7000));
/// farcall::Server::builder().add_service(service).serve(address).await
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address",
    label = "not an address",
    note = "an address is text as it is, without `parse`, such as \"auto://10.0.0.1:7000\" or a \
            `String`; a `farcall::Address`; a `SocketAddr`, which is auto://; or an `http::Uri`"
)]
pub trait IntoAddress {
    /// The address.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] if the text is not an address.
    fn into_address(self) -> Result<Address, AddressError>;
}

impl IntoAddress for Address {
    fn into_address(self) -> Result<Address, AddressError> {
        Ok(self)
    }
}

impl IntoAddress for &Address {
    fn into_address(self) -> Result<Address, AddressError> {
        Ok(self.clone())
    }
}

impl IntoAddress for &str {
    fn into_address(self) -> Result<Address, AddressError> {
        self.parse()
    }
}

impl IntoAddress for String {
    fn into_address(self) -> Result<Address, AddressError> {
        self.parse()
    }
}

impl IntoAddress for &String {
    fn into_address(self) -> Result<Address, AddressError> {
        self.parse()
    }
}

impl IntoAddress for SocketAddr {
    fn into_address(self) -> Result<Address, AddressError> {
        Ok(self.into())
    }
}

impl IntoAddress for Uri {
    fn into_address(self) -> Result<Address, AddressError> {
        self.to_string().parse()
    }
}

impl From<SocketAddr> for Address {
    /// The address at `auto://`.
    fn from(address: SocketAddr) -> Self {
        Self::Auto(address.to_string())
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads an address. The case of its scheme does not matter.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|reason| AddressError { text: text.to_owned(), reason })
    }
}

/// The reason why a server cannot listen at an address of a registered scheme.
pub(crate) const NO_SOCKET_SCHEME: &str =
    "a server listens at auto://, rdma://, tcp://, unix:// or inproc://";

fn parse(text: &str) -> Result<Address, Cow<'static, str>> {
    let (scheme, rest) = text.split_once("://").ok_or_else(|| without_scheme(text))?;
    let scheme = scheme.to_ascii_lowercase();
    // A comma is a character of paths, and of addresses that their scheme's own factory reads.
    if text.contains(',') && scheme != "unix" && is_own(&scheme) {
        return parse_list(&scheme, text).map(Address::List);
    }
    if let Some(name) = DnsName::parse(&scheme, rest) {
        return name.map(Address::Dns);
    }
    match scheme.as_str() {
        "auto" => authority(&scheme, rest).map(Address::Auto),
        "rdma" => authority(&scheme, rest).map(Address::Rdma),
        "tcp" => authority(&scheme, rest).map(Address::Tcp),
        "grpc" => authority(&scheme, rest).map(Address::Grpc),
        "grpcs" => authority(&scheme, rest).map(Address::Grpcs),
        "unix" if rest.is_empty() || rest == "@" || rest.contains('\0') => {
            Err("unix:// needs a path or an @name".into())
        }
        "unix" if ["/", "@", "./", "../"].iter().any(|start| rest.starts_with(start)) => {
            Ok(Address::Unix(rest.to_owned()))
        }
        "unix" => Err(format!(
            "an absolute path needs three slashes: write unix:///{rest}, or unix://./{rest} for a \
             relative path"
        )
        .into()),
        "inproc" if rest.is_empty() || rest.contains('/') => Err("inproc:// needs a name".into()),
        "inproc" => Ok(Address::Inproc(rest.to_owned())),
        "http" => Err(format!(
            "for a farcall server, write tcp://{rest} or auto://{rest}; for a gRPC server, \
             grpc://{rest} \
             (feature `grpc`)"
        )
        .into()),
        "https" => Err(format!(
            "for a gRPC server with TLS, write grpcs://{rest}; for a farcall server, \
             auto://{rest} or \
             tcp://{rest}, with `tls` set (feature `tls`)"
        )
        .into()),
        _ => CustomAddress::parse(&scheme, rest).map(Address::Custom),
    }
}

/// The servers of a list. One without a scheme has the first one's.
fn parse_list(scheme: &str, text: &str) -> Result<Vec<Address>, Cow<'static, str>> {
    let parse_one = |text: &str| {
        let address = match text.contains("://") {
            true => parse(text)?,
            false => parse(&format!("{scheme}://{text}"))?,
        };
        match address {
            Address::Dns(_) => Err("a list cannot contain dns://, which names many servers".into()),
            Address::Custom(CustomAddress { name, .. }) => {
                let schemes = "auto, rdma, tcp, unix, inproc, grpc or grpcs";
                Err(format!("a list cannot contain {name}://: use {schemes}").into())
            }
            address => Ok(address),
        }
    };
    text.split(',').map(|part| parse_one(part.trim())).collect()
}

/// Why a text without `://` is not an address.
fn without_scheme(text: &str) -> Cow<'static, str> {
    // gRPC's names for Unix sockets.
    let named = [("unix:", "unix://"), ("unix-abstract:", "unix://@")];
    let unix = named.into_iter().find_map(|(prefix, ours)| {
        let rest = text.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
        let is_relative = ours == "unix://" && !rest.starts_with('/');
        Some(format!("write {ours}{}{rest}", if is_relative { "./" } else { "" }))
    });
    match unix {
        Some(reason) => reason.into(),
        None => match authority("auto", text) {
            Ok(authority) => format!(
                "the scheme is missing: write auto://{authority} or \
                         tcp://{authority}"
            )
            .into(),
            Err(reason) if unbracketed(text).is_some() => reason,
            Err(_) => "the scheme is missing (auto://, rdma://, tcp://, unix:// or \
                       inproc://)"
                .into(),
        },
    }
}

/// The host and port of an address.
fn authority(scheme: &str, text: &str) -> Result<String, Cow<'static, str>> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if let Some((host, port)) = unbracketed(text) {
        let rule = "an IPv6 address needs brackets";
        return Err(format!("{rule}: {scheme}://[{host}]:{port}").into());
    }
    // gRPC's targets have three slashes, as has a name of DNS.
    if let Some(text) = text.strip_prefix('/').filter(|text| Authority::from_str(text).is_ok()) {
        let registry = if scheme == "auto" { "dns".to_owned() } else { format!("dns+{scheme}") };
        return Err(format!(
            "{scheme}:// has two slashes before host:port: write {scheme}://{text}, or \
             {registry}:///{text} for all servers of that name"
        )
        .into());
    }
    let authority = Authority::from_str(text).map_err(|_| "expected host:port after the scheme")?;
    match authority.port_u16() {
        Some(_) if !authority.as_str().contains('@') => Ok(authority.to_string()),
        Some(_) => Err("an address has no user name".into()),
        None => Err("the port is missing, or not between 0 and 65535".into()),
    }
}

/// The IPv6 address and the port of `::1:7000`, which a reader takes for one longer address.
fn unbracketed(text: &str) -> Option<(Ipv6Addr, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host.parse().ok()?, port.parse().ok()?))
}

impl Address {
    /// Returns true if connections to it stay on this host.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_) | Self::Inproc(_))
    }

    /// The protocol and path of its servers; `None` where they stay on this host, and for a list.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        match self {
            Self::Auto(_) => Some(Scheme::Auto),
            Self::Rdma(_) => Some(Scheme::Rdma),
            Self::Tcp(_) => Some(Scheme::Tcp),
            Self::Grpc(_) => Some(Scheme::Grpc),
            Self::Grpcs(_) => Some(Scheme::Grpcs),
            Self::Dns(name) => Some(name.scheme),
            Self::Custom(address) => Some(address.scheme),
            Self::Unix(_) | Self::Inproc(_) | Self::List(_) => None,
        }
    }

    /// Returns true if a channel to it chooses among servers.
    pub(crate) fn names_many(&self) -> bool {
        matches!(self, Self::Dns(_) | Self::Custom(_) | Self::List(_))
    }

    /// The same path with another host and port.
    pub(crate) fn with_authority(&self, authority: String) -> Self {
        match self {
            Self::Auto(_) => Self::Auto(authority),
            Self::Rdma(_) => Self::Rdma(authority),
            Self::Tcp(_) => Self::Tcp(authority),
            Self::Grpc(_) => Self::Grpc(authority),
            Self::Grpcs(_) => Self::Grpcs(authority),
            Self::Unix(_) => Self::Unix(authority),
            Self::Inproc(_) => Self::Inproc(authority),
            Self::Dns(_) | Self::Custom(_) | Self::List(_) => self.clone(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto(rest) => write!(f, "auto://{rest}"),
            Self::Rdma(rest) => write!(f, "rdma://{rest}"),
            Self::Tcp(rest) => write!(f, "tcp://{rest}"),
            Self::Grpc(rest) => write!(f, "grpc://{rest}"),
            Self::Grpcs(rest) => write!(f, "grpcs://{rest}"),
            Self::Unix(rest) => write!(f, "unix://{rest}"),
            Self::Inproc(rest) => write!(f, "inproc://{rest}"),
            Self::Dns(name) => name.fmt(f),
            Self::Custom(address) => address.fmt(f),
            Self::List(addresses) => {
                for (index, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if index > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_being_printed() {
        for text in [
            "auto://host:1",
            "rdma://10.0.0.1:7000",
            "tcp://[::1]:80",
            "grpc://host:50051",
            "grpcs://host:443",
            "inproc://my-server",
            "etcd://10.0.0.9:2379/services/shop",
            "etcd+tcp://127.0.0.1:2379/shop",
            "dns+grpc:///inventory:50051",
            "dns+grpcs:///inventory",
            "etcd+grpc://127.0.0.1:2379/shop",
            "xds+grpcs:///inventory.shop",
            "grpc://a:1,grpc://b:1",
            "xds:///inventory.shop.svc.cluster.local:7000",
            "xds+tcp://127.0.0.1:18000/inventory",
            "consul.v2://a:1,b:2/x y?z#1",
            "unix:///run/x.sock",
            "unix://./relative/path",
            "unix://../path",
            "unix://@abstract",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_are_made_of_what_programs_have() {
        let socket: SocketAddr = "[::1]:7000".parse().unwrap();
        let uri: Uri = "tcp://host:1/".parse().unwrap();
        let made = [
            ("auto://[::1]:7000", socket.into_address()),
            ("tcp://host:1", uri.into_address()),
            ("tcp://host:1", "tcp://host:1".into_address()),
            ("tcp://host:1", "tcp://host:1".to_owned().into_address()),
            ("inproc://a", Address::Inproc("a".to_owned()).into_address()),
        ];
        for (text, address) in made {
            assert_eq!(address.unwrap().to_string(), text);
        }
        let tonics: Uri = "http://host:1".parse().unwrap();
        let error = tonics.into_address().unwrap_err().to_string();
        assert!(error.contains("for a farcall server, write tcp://host:1"), "{error}");
    }

    #[test]
    fn the_case_of_a_scheme_does_not_matter() {
        for (text, address) in [("AUTO://host:1", "auto://host:1"), ("Unix:///X", "unix:///X")] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), address);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            ("host:1", "the scheme is missing: write auto://host:1 or tcp://host:1"),
            ("host", "the scheme is missing (auto://, "),
            ("", "the scheme is missing (auto://, "),
            (
                "http://host:1",
                "for a farcall server, write tcp://host:1 or auto://host:1; for a gRPC server, \
                 grpc://host:1 (feature `grpc`)",
            ),
            (
                "https://host:1",
                "grpcs://host:1; for a farcall server, auto://host:1 or \
              tcp://host:1",
            ),
            ("grpcs://host", "port is missing"),
            ("grpc://host", "port is missing"),
            ("unix://tmp/x", "write unix:///tmp/x, or unix://./tmp/x for a relative"),
            ("unix:/run/app.sock", "write unix:///run/app.sock"),
            ("unix:app.sock", "write unix://./app.sock"),
            ("unix-abstract:app", "write unix://@app"),
            ("tcp://::1:7000", "needs brackets: tcp://[::1]:7000"),
            ("RDMA://fe80::1:7000", "needs brackets: rdma://[fe80::1]:7000"),
            ("::1:7000", "needs brackets: auto://[::1]:7000"),
            ("tcp://[::1]", "port is missing"),
            ("tcp://", "expected host:port"),
            ("u_p://host:1", "unknown scheme"),
            ("7dp://host:1", "unknown scheme"),
            ("tcp+grpc://host:1", "unknown scheme"),
            ("://host:1", "unknown scheme"),
            ("consul://shop\n", "a control character"),
            ("dns+grpc://inventory:1", "write dns+grpc:///inventory:1"),
            ("dns+auto:///inventory:1", "write rdma, tcp, grpc or grpcs after dns+"),
            ("dns+http:///inventory:1", "write rdma, tcp, grpc or grpcs after dns+"),
            ("etcd+unix://127.0.0.1:2379/shop", "write rdma, tcp, grpc or grpcs after etcd+"),
            ("xds+:///inventory:1", "write rdma, tcp, grpc or grpcs after xds+"),
            ("grpc+dns:///inventory:1", "write dns before the plus sign: dns+grpc://"),
            ("grpc:///inventory:1", "write grpc://inventory:1, or dns+grpc:///inventory:1 for all"),
            ("auto:///inventory:1", "write auto://inventory:1, or dns:///inventory:1 for all"),
            (
                "grpc://a:1,dns+grpc:///b:1",
                "a list cannot contain dns://, which names many \
              servers",
            ),
            ("dns+grpc:///a:1,b:1", "a list cannot contain dns://, which names many servers"),
            ("tcp+consul://inventory", "write consul before the plus sign: consul+tcp://"),
            ("grpc://a:1,xds:///b", "a list cannot contain xds://: use auto, rdma, "),
            ("tcp://host", "port is missing"),
            ("tcp://host:99999", "port is missing"),
            ("tcp://a b:1", "expected host:port"),
            ("tcp://me@host:1", "has no user name"),
            ("inproc://", "needs a name"),
            ("unix://", "needs a path"),
            ("unix://@", "needs a path"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
