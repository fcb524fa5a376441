//! Addresses: which path, and to whom.

use std::fmt;
use std::str::FromStr;

use http::uri::Authority;
use thiserror::Error;

/// Where to listen or to connect to, and by which path calls may travel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `auto://host:port`: RDMA when both sides can, otherwise TCP.
    Auto(String),
    /// `rdma://host:port`: RDMA or an error.
    Rdma(String),
    /// `tcp://host:port`.
    Tcp(String),
    /// `unix:///path`, `unix://relative/path` or, for an abstract name, `unix://@name`: a Unix
    /// socket.
    Unix(String),
    /// `inproc://name`: inside the process.
    Inproc(String),
}

/// Text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not an address: {reason}")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |reason| AddressError { text: text.to_owned(), reason };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            error("it has no scheme (auto://, rdma://, tcp://, unix:// or inproc://)")
        })?;
        if scheme == "inproc" {
            let is_name = !rest.is_empty() && !rest.contains('/');
            let name = is_name.then(|| rest.to_owned());
            return name.map(Self::Inproc).ok_or_else(|| error("inproc:// needs a name"));
        }
        if scheme == "unix" {
            let is_name = !rest.is_empty() && rest != "@" && !rest.contains('\0');
            let name = is_name.then(|| rest.to_owned());
            return name.map(Self::Unix).ok_or_else(|| error("unix:// needs a path or an @name"));
        }
        let make: fn(String) -> Self = match scheme {
            "auto" => Self::Auto,
            "rdma" => Self::Rdma,
            "tcp" => Self::Tcp,
            _ => return Err(error("its scheme is none of auto, rdma, tcp, unix and inproc")),
        };
        let authority = Authority::from_str(rest.strip_suffix('/').unwrap_or(rest))
            .map_err(|_| error("what follows the scheme is not host:port"))?;
        match authority.port_u16() {
            Some(_) if !authority.as_str().contains('@') => Ok(make(authority.to_string())),
            Some(_) => Err(error("it names a user")),
            None => Err(error("it has no port between 0 and 65535")),
        }
    }
}

impl Address {
    /// The same path with another host and port.
    pub(crate) fn with_authority(&self, authority: String) -> Self {
        match self {
            Self::Auto(_) => Self::Auto(authority),
            Self::Rdma(_) => Self::Rdma(authority),
            Self::Tcp(_) => Self::Tcp(authority),
            Self::Unix(_) => Self::Unix(authority),
            Self::Inproc(_) => Self::Inproc(authority),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto(rest) => write!(f, "auto://{rest}"),
            Self::Rdma(rest) => write!(f, "rdma://{rest}"),
            Self::Tcp(rest) => write!(f, "tcp://{rest}"),
            Self::Unix(rest) => write!(f, "unix://{rest}"),
            Self::Inproc(rest) => write!(f, "inproc://{rest}"),
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
            "inproc://my-server",
            "unix:///run/x.sock",
            "unix://relative/path",
            "unix://@abstract",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            ("host:1", "no scheme"),
            ("udp://host:1", "scheme is none of"),
            ("tcp://host", "no port"),
            ("tcp://host:99999", "no port"),
            ("tcp://a b:1", "not host:port"),
            ("tcp://me@host:1", "names a user"),
            ("inproc://", "needs a name"),
            ("unix://", "needs a path"),
            ("unix://@", "needs a path"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
