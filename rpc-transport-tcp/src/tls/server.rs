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

/// Which clients a server with a [`client_ca`](ServerTlsConfig::with_client_ca) accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ClientCerts {
    /// Those that show a certificate of that authority.
    #[default]
    Required,
    /// Those too that show none: they have no identity. One that shows a certificate of another
    /// authority is refused.
    Optional,
}

/// What a server's TLS is made of: a plain value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    cert: Pem,
    key: Pem,
    client_ca: Option<Pem>,
    client_certs: ClientCerts,
    alpn: AlpnPolicy,
}

impl ServerTlsConfig {
    /// A server with the certificate in `cert`, with those of intermediate authorities behind it,
    /// and the private key in `key`. Clients are not asked for certificates.
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

    /// Asks clients for certificates of the authorities in `ca` (mutual TLS). Clients without one
    /// are refused, unless [`with_client_certs`](Self::with_client_certs) says otherwise.
    #[must_use]
    pub fn with_client_ca(mut self, ca: impl Into<Pem>) -> Self {
        self.client_ca = Some(ca.into());
        self
    }

    /// Sets whether clients have to show a certificate, where there is a `client_ca`; required by
    /// default.
    #[must_use]
    pub fn with_client_certs(mut self, certs: ClientCerts) -> Self {
        self.client_certs = certs;
        self
    }

    /// Sets the rule for a client that agrees on no protocol in the TLS handshake (ALPN). By
    /// default such a client may speak HTTP/1 and nothing else.
    ///
    /// A load balancer that ends TLS and encrypts anew to this server often agrees on nothing.
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

/// What was read, with the certificate that this side shows.
pub(super) type Read<C> = (Arc<C>, Option<CertificateDer<'static>>);

/// The value, or nothing beside its error among `errors`.
pub(super) fn found<T>(read: Result<T, TlsError>, errors: &mut Vec<TlsError>) -> Option<T> {
    read.map_err(|error| errors.push(error)).ok()
}

/// The authorities in `ca`.
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

/// A handle to a server's TLS. Clones are the same.
#[derive(Clone)]
pub struct ServerTls {
    shared: Arc<Shared>,
}

struct Shared {
    loaded: ArcSwap<Loaded>,
}

/// What was read, and what named it.
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
    /// Reads what `config` names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or does not hold what it should.
    pub fn new(config: ServerTlsConfig) -> Result<Self, TlsError> {
        Self::checked(config).map_err(first)
    }

    /// Reads what `config` names, and reports every file that is wrong.
    #[doc(hidden)]
    pub fn checked(config: ServerTlsConfig) -> Result<Self, Vec<TlsError>> {
        let loaded = ArcSwap::from_pointee(Loaded::new(config)?);
        Ok(Self { shared: Arc::new(Shared { loaded }) })
    }

    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> ServerTlsConfig {
        self.shared.loaded.load().named.clone()
    }

    /// Returns the end of the validity of the server's certificate, if it has one.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        valid_until(self.shared.loaded.load().leaf.as_ref())
    }

    /// Reads the files again. From the next accept on, connections have what they say; those that
    /// are open stay as they are. It blocks for as long as it takes to read the files.
    ///
    /// # Errors
    ///
    /// As [`ServerTls::new`]; what was read before stays in use then.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.store(&Arc::new(Loaded::new(self.config()).map_err(first)?));
        Ok(())
    }

    /// Takes the configuration of `other`, with what `other` has read. It holds from the next
    /// accept on; connections that are open stay as they are. Nothing is read here, so that it
    /// cannot fail: the `new` of `other` has checked all of it.
    pub fn replace(&self, other: &Self) {
        self.store(&other.shared.loaded.load_full());
    }

    fn store(&self, new: &Arc<Loaded>) {
        let old = self.shared.loaded.swap(Arc::clone(new));
        log_renewal("server", old.leaf.as_ref(), new.leaf.as_ref());
    }

    /// The server's end of a stream that was just accepted, before its handshake. It speaks one of
    /// `protocols`.
    pub(crate) fn accept(
        &self,
        stream: TcpStream,
        protocols: &Arc<[Alpn]>,
    ) -> io::Result<TlsSocket> {
        // Each listener has protocols of its own. A copy is a dozen counts of references.
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
