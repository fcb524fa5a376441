//! TLS of a channel: the servers that it trusts, and its own certificate.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rpc_core::connect::Alpn;
use rustls::client::{ClientConnection, Resumption, WantsClientCert};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder};
use tokio::net::TcpStream;

use super::alpn::{AlpnPolicy, Protocols};
use super::error::{TlsError, first};
use super::pem::{Pem, unusable_pair};
use super::renewal::{log_renewal, valid_until};
use super::server::{Read, found, roots};
use super::socket::TlsSocket;
use super::{VERSIONS, provider};

/// The configuration of a channel's TLS: a plain value.
///
/// Without a [`ca`](Self::with_ca), the operating system's authorities verify servers. That
/// requires farcall's feature `tls-platform-verifier`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTlsConfig {
    ca: Option<Pem>,
    has_platform_roots: bool,
    server_name: Option<String>,
    cert: Option<(Pem, Pem)>,
    alpn: AlpnPolicy,
}

impl ClientTlsConfig {
    /// Trusts servers whose certificate one of the authorities in `ca` has signed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # extern crate rpc_transport_tcp as farcall;
    /// use farcall::tls::{ClientTls, ClientTlsConfig, TlsError};
    ///
    /// fn tls() -> Result<ClientTls, TlsError> {
    ///     let config = ClientTlsConfig::default().with_ca("tls/ca.pem");
    ///     ClientTls::new(config.with_cert("tls/client.pem", "tls/client.key"))
    /// }
    /// ```
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<Pem>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Trusts the operating system's authorities in addition to those of
    /// [`with_ca`](Self::with_ca), if `are_trusted` is true. Without a `ca` they are always
    /// trusted.
    #[must_use]
    pub fn with_platform_roots(mut self, are_trusted: bool) -> Self {
        self.has_platform_roots = are_trusted;
        self
    }

    /// Sets the name that the server's certificate must be for: a DNS name or an IP address.
    /// Defaults to the host of the channel's address.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets the certificate to present if the server asks for one (mutual TLS). `cert` has the
    /// certificate, followed by those of intermediate authorities. `key` has its private key.
    #[must_use]
    pub fn with_cert(mut self, cert: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.cert = Some((cert.into(), key.into()));
        self
    }

    /// Sets the policy for a server that negotiates no protocol in the TLS handshake (ALPN). By
    /// default the channel refuses such a server.
    #[must_use]
    pub fn with_alpn(mut self, policy: AlpnPolicy) -> Self {
        self.alpn = policy;
        self
    }

    /// Reads all files.
    fn load(&self) -> Result<Read<ClientConfig>, Vec<TlsError>> {
        let mut errors = Vec::new();
        if let Some(name) = &self.server_name {
            found(server_name(name), &mut errors);
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| vec![TlsError::refused(error)])?;
        let builder = match &self.ca {
            Some(ca) if !self.has_platform_roots => {
                roots(ca, "tls.ca").map(|roots| builder.with_root_certificates(roots))
            }
            ca => with_platform_roots(builder, ca.as_ref()),
        };
        let builder = found(builder, &mut errors);
        let pair = self.cert.as_ref().map(|(cert, key)| {
            let chain = found(cert.certificates("tls.cert"), &mut errors);
            (chain, found(key.key("tls.key"), &mut errors))
        });
        // Every file is read before the first error returns, so that a user sees all faults at
        // once.
        let (Some(builder), true) = (builder, errors.is_empty()) else { return Err(errors) };
        let (mut config, leaf) = match (&self.cert, pair) {
            (Some((cert, key)), Some((Some(chain), Some(secret)))) => {
                let leaf = chain.first().cloned();
                let config = builder.with_client_auth_cert(chain, secret);
                (config.map_err(|error| vec![unusable_pair(cert, key, &error)])?, leaf)
            }
            _ => (builder.with_no_client_auth(), None),
        };
        // A resumed session would keep a client's identity beyond the rotation of its certificate.
        config.resumption = Resumption::disabled();
        Ok((Arc::new(config), leaf))
    }
}

/// Verifies servers with the operating system's verifier, and the authorities in `ca`.
#[cfg(feature = "tls-platform-verifier")]
fn with_platform_roots(
    builder: ConfigBuilder<ClientConfig, rustls::WantsVerifier>,
    ca: Option<&Pem>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let extra = ca.map(|ca| ca.certificates("tls.ca")).transpose()?.unwrap_or_default();
    let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(extra, provider());
    let verifier = Arc::new(verifier.map_err(TlsError::refused)?);
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}

#[cfg(not(feature = "tls-platform-verifier"))]
fn with_platform_roots(
    _: ConfigBuilder<ClientConfig, rustls::WantsVerifier>,
    _: Option<&Pem>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let hint = ": name one, or build farcall with its feature `tls-platform-verifier`, which takes \
                the operating system's";
    Err(TlsError::NoAuthority { setting: "tls.ca", hint })
}

/// Parses a name that certificates can be for.
fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    // An address has brackets around an IPv6 address.
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let unknown = |_| TlsError::Name { setting: "tls.server_name", name: name.to_owned() };
    ServerName::try_from(bare.to_owned()).map_err(unknown)
}

/// A handle to a channel's TLS. Clones share their state.
#[derive(Clone)]
pub struct ClientTls {
    shared: Arc<SharedClientTls>,
}

struct SharedClientTls {
    loaded: ArcSwap<Loaded>,
}

/// The loaded files, and the configuration that names them.
struct Loaded {
    named: ClientTlsConfig,
    config: Arc<ClientConfig>,
    leaf: Option<CertificateDer<'static>>,
}

impl Loaded {
    fn new(named: ClientTlsConfig) -> Result<Self, Vec<TlsError>> {
        let (config, leaf) = named.load()?;
        Ok(Self { config, leaf, named })
    }
}

impl ClientTls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is unreadable or unsuitable, if the server's name is invalid, or
    /// if there is no `ca` and the operating system's authorities are unavailable.
    pub fn new(config: ClientTlsConfig) -> Result<Self, TlsError> {
        Self::checked(config).map_err(first)
    }

    /// Reads the files that `config` names, and returns all errors instead of the first.
    #[doc(hidden)]
    pub fn checked(config: ClientTlsConfig) -> Result<Self, Vec<TlsError>> {
        let loaded = ArcSwap::from_pointee(Loaded::new(config)?);
        Ok(Self { shared: Arc::new(SharedClientTls { loaded }) })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> ClientTlsConfig {
        self.shared.loaded.load().named.clone()
    }

    /// Returns the end of the validity of the client's certificate, if it has one.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        valid_until(self.shared.loaded.load().leaf.as_ref())
    }

    /// Reads the files again. New connections use them; open connections stay as they are. Blocks
    /// while it reads.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ClientTls::new`]. The previous files then stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.store(&Arc::new(Loaded::new(self.config()).map_err(first)?));
        Ok(())
    }

    /// Adopts the configuration of `other` and the files that it has read.
    ///
    /// New connections use them; open connections stay as they are. This cannot fail, since it
    /// reads nothing: the `new` of `other` has checked everything.
    pub fn replace(&self, other: &Self) {
        self.store(&other.shared.loaded.load_full());
    }

    fn store(&self, new: &Arc<Loaded>) {
        let old = self.shared.loaded.swap(Arc::clone(new));
        log_renewal("client", old.leaf.as_ref(), new.leaf.as_ref());
    }

    /// Returns the client's end of a stream to `host`, before its handshake.
    pub(crate) fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        protocols: Arc<[Alpn]>,
    ) -> io::Result<TlsSocket> {
        let loaded = self.shared.loaded.load();
        let name = loaded.named.server_name.as_deref().unwrap_or(host);
        let name = server_name(name).map_err(|error| io::Error::other(error.to_string()))?;
        let protocols = Protocols { list: protocols, policy: loaded.named.alpn };
        let config = Arc::clone(&loaded.config);
        let connection = ClientConnection::new_with_alpn(config, name, protocols.ids());
        let connection = connection.map_err(io::Error::other)?;
        Ok(TlsSocket::new(stream, connection.into(), protocols))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("config", &self.config()).finish_non_exhaustive()
    }
}
