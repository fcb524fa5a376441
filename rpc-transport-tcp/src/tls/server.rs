//! TLS of a server: its certificate, and the clients that it accepts.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rpc_core::connect::Alpn;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use super::alpn::{AlpnPolicy, Protocols};
use super::certificate_fault::{Holder, describe_fault};
use super::error::{TlsError, first};
use super::pem::{Pem, unusable_pair};
use super::renewal::{log_renewal, valid_until};
use super::socket::TlsSocket;
use super::{VERSIONS, provider};

/// The clients that a server with a [`client_ca`](ServerTlsConfig::with_client_ca) accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ClientCerts {
    /// Clients with a certificate from that authority.
    #[default]
    Required,
    /// Also clients without a certificate, which have no identity. The server still refuses a
    /// certificate from another authority.
    Optional,
}

/// The configuration of a server's TLS: a plain value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    cert: Pem,
    key: Pem,
    client_ca: Option<Pem>,
    client_certs: ClientCerts,
    alpn: AlpnPolicy,
}

impl ServerTlsConfig {
    /// Creates a configuration with the certificate in `cert`, followed by those of intermediate
    /// authorities, and the private key in `key`. The server asks clients for no certificate.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # extern crate rpc_transport_tcp as farcall;
    /// use farcall::tls::{ServerTls, ServerTlsConfig, TlsError};
    ///
    /// fn tls() -> Result<ServerTls, TlsError> {
    ///     let config = ServerTlsConfig::new("tls/server.pem", "tls/server.key");
    ///     ServerTls::new(config.with_client_ca("tls/ca.pem"))
    /// }
    /// ```
    #[must_use]
    pub fn new(cert: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        let (client_certs, alpn) = (ClientCerts::default(), AlpnPolicy::default());
        Self { cert: cert.into(), key: key.into(), client_ca: None, client_certs, alpn }
    }

    /// Asks clients for certificates from the authorities in `ca` (mutual TLS). The server refuses
    /// clients without one, unless [`with_client_certs`](Self::with_client_certs) allows them.
    #[must_use]
    pub fn with_client_ca(mut self, ca: impl Into<Pem>) -> Self {
        self.client_ca = Some(ca.into());
        self
    }

    /// Sets the policy for clients without a certificate, if there is a `client_ca`. By default a
    /// certificate is required.
    #[must_use]
    pub fn with_client_certs(mut self, certs: ClientCerts) -> Self {
        self.client_certs = certs;
        self
    }

    /// Sets the policy for a client that negotiates no protocol in the TLS handshake (ALPN). By
    /// default such a client may only speak HTTP/1.
    ///
    /// A load balancer that terminates TLS and encrypts again often negotiates nothing.
    #[must_use]
    pub fn with_alpn(mut self, policy: AlpnPolicy) -> Self {
        self.alpn = policy;
        self
    }

    /// Reads all files.
    fn load(&self) -> Result<Read<ServerConfig>, Vec<TlsError>> {
        let mut errors = Vec::new();
        let verifier = self.client_ca.as_ref().and_then(|ca| found(self.verifier(ca), &mut errors));
        let chain = found(self.cert.certificates("tls.cert"), &mut errors);
        let key = found(self.key.key("tls.key"), &mut errors);
        let (Some(chain), Some(key), true) = (chain, key, errors.is_empty()) else {
            return Err(errors);
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| vec![TlsError::refused(error)])?;
        let builder = match verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let leaf = chain.first().cloned();
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| vec![unusable_pair(&self.cert, &self.key, &error)])?;
        // Neither sessions nor tickets: a resumed session would keep a client's identity beyond the
        // rotation of its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((Arc::new(config), leaf))
    }

    fn verifier(&self, ca: &Pem) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let roots = Arc::new(roots(ca, "tls.client_ca")?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let verifier = match self.client_certs {
            ClientCerts::Required => verifier,
            ClientCerts::Optional => verifier.allow_unauthenticated(),
        };
        verifier.build().map_err(TlsError::refused)
    }
}

/// The loaded configuration, and the certificate that this side presents.
pub(super) type Read<C> = (Arc<C>, Option<CertificateDer<'static>>);

/// Returns the value, or adds the error to `errors`.
pub(super) fn found<T>(read: Result<T, TlsError>, errors: &mut Vec<TlsError>) -> Option<T> {
    read.map_err(|error| errors.push(error)).ok()
}

/// Reads the authorities in `ca`.
pub(super) fn roots(ca: &Pem, setting: &'static str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.certificates(setting)? {
        let reason = |error: rustls::Error| match error {
            rustls::Error::InvalidCertificate(fault) => {
                format!("a certificate {}", describe_fault(Holder::Own, &fault))
            }
            error => error.to_string(),
        };
        roots.add(certificate).map_err(|error| TlsError::Unusable {
            setting,
            origin: ca.origin(),
            reason: reason(error),
        })?;
    }
    Ok(roots)
}

/// A handle to a server's TLS. Clones share their state.
#[derive(Clone)]
pub struct ServerTls {
    shared: Arc<SharedServerTls>,
}

struct SharedServerTls {
    loaded: ArcSwap<Loaded>,
}

/// The loaded files, and the configuration that names them.
struct Loaded {
    named: ServerTlsConfig,
    config: Arc<ServerConfig>,
    leaf: Option<CertificateDer<'static>>,
}

impl Loaded {
    fn new(named: ServerTlsConfig) -> Result<Self, Vec<TlsError>> {
        let (config, leaf) = named.load()?;
        Ok(Self { config, leaf, named })
    }
}

impl ServerTls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is unreadable or unsuitable.
    pub fn new(config: ServerTlsConfig) -> Result<Self, TlsError> {
        Self::checked(config).map_err(first)
    }

    /// Reads the files that `config` names, and returns all errors instead of the first.
    #[doc(hidden)]
    pub fn checked(config: ServerTlsConfig) -> Result<Self, Vec<TlsError>> {
        let loaded = ArcSwap::from_pointee(Loaded::new(config)?);
        Ok(Self { shared: Arc::new(SharedServerTls { loaded }) })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> ServerTlsConfig {
        self.shared.loaded.load().named.clone()
    }

    /// Returns the end of the validity of the server's certificate, if it has one.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        valid_until(self.shared.loaded.load().leaf.as_ref())
    }

    /// Reads the files again. Connections accepted from now on use them; open ones stay as they
    /// are. Blocks while it reads.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ServerTls::new`]. The previous files then stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.store(&Arc::new(Loaded::new(self.config()).map_err(first)?));
        Ok(())
    }

    /// Adopts the configuration of `other` and the files that it has read.
    ///
    /// Connections accepted from now on use them; open ones stay as they are. This cannot fail,
    /// since it reads nothing: the `new` of `other` has checked everything.
    pub fn replace(&self, other: &Self) {
        self.store(&other.shared.loaded.load_full());
    }

    fn store(&self, new: &Arc<Loaded>) {
        let old = self.shared.loaded.swap(Arc::clone(new));
        log_renewal("server", old.leaf.as_ref(), new.leaf.as_ref());
    }

    /// Returns the server's end of a freshly accepted stream, before its handshake. It negotiates
    /// one of `protocols`.
    pub(crate) fn accept(
        &self,
        stream: TcpStream,
        protocols: &Arc<[Alpn]>,
    ) -> io::Result<TlsSocket> {
        // Each listener has its own protocols. Copying the configuration costs a dozen reference
        // counts.
        let loaded = self.shared.loaded.load();
        let protocols = Protocols { list: Arc::clone(protocols), policy: loaded.named.alpn };
        let mut config = ServerConfig::clone(&loaded.config);
        config.alpn_protocols = protocols.ids();
        let connection = ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        Ok(TlsSocket::new(stream, connection.into(), protocols))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("config", &self.config()).finish_non_exhaustive()
    }
}
