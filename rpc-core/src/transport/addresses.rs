//! The addresses of the two ends of a link, and the identity of the peer, as verified by TLS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

#[cfg(not(windows))]
pub(crate) use tokio::net::unix::UCred;
// On Windows the crate refuses to compile, in one sentence. An import that is not there would add
// errors to it.
#[cfg(windows)]
pub(crate) use std::convert::Infallible as UCred;

/// The two ends of a link, where they have addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// This end.
    pub local: Option<SocketAddr>,
    /// The peer's end.
    pub peer: Option<SocketAddr>,
    /// The path or `@name` of the Unix socket that joins them.
    pub unix: Option<String>,
    /// The user, group and process at the peer's end of a Unix socket, as the kernel knows them
    /// from the moment when it connected or listened.
    pub credentials: Option<UCred>,
    /// The name of the byte stream that joins them, where the program made it.
    pub stream: Option<String>,
    /// TLS session of the link, with the peer's identity. `None` without TLS.
    pub tls: Option<Arc<TlsInfo>>,
}

impl Addresses {
    /// The peer's identity, which TLS has verified.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.tls.as_ref()?.identity.as_ref()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.unix {
            return write!(f, "unix://{name}");
        }
        if let Some(name) = &self.stream {
            return match self.peer {
                Some(peer) => write!(f, "{name} to {peer}"),
                None => f.write_str(name),
            };
        }
        match (self.local, self.peer) {
            (Some(local), Some(peer)) => write!(f, "{local} <-> {peer}"),
            (None, Some(peer)) => write!(f, "{peer}"),
            (Some(local), None) => write!(f, "{local}"),
            (None, None) => f.write_str("in process"),
        }
    }
}

/// The TLS session of a connection: it is encrypted, and its peer may have an identity.
///
/// On a connection that moved to RDMA this is the session that it started on: it identifies the
/// peer, but RDMA's packets are not encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The peer's identity; `None` where the peer is a client without a certificate.
    pub identity: Option<Identity>,
    /// The protocol that the two ends agreed on in their handshake, as ALPN names it:
    /// `farcall/1`, or `h2` for gRPC. `None` where they agreed on nothing, and the configuration
    /// of this side allows that.
    pub protocol: Option<&'static str>,
    is_assumed: bool,
}

impl TlsInfo {
    /// A session with a peer of that identity.
    #[must_use]
    pub fn new(identity: Option<Identity>) -> Self {
        Self { identity, protocol: None, is_assumed: false }
    }

    /// The same session, whose two ends agreed on a protocol in their handshake.
    #[must_use]
    pub fn with_protocol(mut self, protocol: &'static str) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// The same session, whose client agreed on nothing and is held to this protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn with_assumed_protocol(mut self, protocol: &'static str) -> Self {
        self.is_assumed = true;
        self.with_protocol(protocol)
    }

    /// Returns true if the two ends agreed on nothing, and this side assumes
    /// [`protocol`](Self::protocol).
    #[must_use]
    pub(crate) fn is_assumed(&self) -> bool {
        self.is_assumed
    }
}

/// The identity of a peer: its certificate, which the TLS handshake has verified, and the names
/// that the certificate is for.
///
/// A name proves only that an authority which this side trusts has given it to the peer. The
/// subject's common name is no identity, and is not read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    certificate: Bytes,
    dns_names: Vec<String>,
    uris: Vec<String>,
}

impl Identity {
    /// The identity of a verified leaf certificate, in DER, and its names.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate rpc_core as farcall;
    /// use farcall::transport::Identity;
    ///
    /// let uris = vec!["spiffe://example.org/billing".to_owned()];
    /// let identity = Identity::new(vec![0x30], vec!["billing.example".to_owned()], uris);
    /// assert!(identity.has_name("billing.example"));
    /// assert!(identity.has_name("spiffe://example.org/billing"));
    /// assert_eq!(identity.to_string(), "spiffe://example.org/billing");
    /// ```
    #[must_use]
    pub fn new(certificate: impl Into<Bytes>, dns_names: Vec<String>, uris: Vec<String>) -> Self {
        Self { certificate: certificate.into(), dns_names, uris }
    }

    /// The leaf certificate in DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The DNS names of the certificate, in its order. A wildcard stands as it is there.
    #[must_use]
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// The URIs of the certificate, in its order: a SPIFFE ID is one.
    #[must_use]
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// Returns true if the certificate has exactly this DNS name or this URI. A wildcard matches
    /// only itself.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.dns_names.iter().chain(&self.uris).any(|it| it == name)
    }
}

/// The first URI, or the first DNS name.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.uris.first().or_else(|| self.dns_names.first());
        f.write_str(name.map_or("a certificate without a DNS name or a URI", String::as_str))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("dns_names", &self.dns_names)
            .field("uris", &self.uris)
            .finish_non_exhaustive()
    }
}
