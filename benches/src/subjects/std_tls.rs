//! The floor of TLS: rustls over blocking sockets, as [`std_net`](super::std_net) has them without.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::certificates::Certificates;
use super::std_net::{StdConnection, Wire, connect, listen};
use crate::worker::Subject;

/// rustls over blocking sockets as a subject.
#[derive(Debug, Clone)]
pub struct StdTls {
    certificates: Certificates,
}

impl StdTls {
    /// With the certificates of a folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { certificates: Certificates::at(folder) }
    }

    fn server(&self) -> Result<ServerConfig> {
        let cert = CertificateDer::from_pem_file(&self.certificates.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.certificates.key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth();
        Ok(config.with_single_cert(vec![cert], key)?)
    }

    fn client(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificates.ca)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        Ok(config.with_no_client_auth())
    }
}

impl Subject for StdTls {
    type Connection = StdConnection<Client>;

    async fn serve(&self, address: &str) -> Result<String> {
        let config = Arc::new(self.server().context("the server's certificate")?);
        listen(address, move |stream| {
            Ok(Server::new(ServerConnection::new(Arc::clone(&config))?, stream))
        })
    }

    async fn connect(&self, address: &str) -> Result<StdConnection<Client>> {
        let config = Arc::new(self.client().context("the authority's certificate")?);
        let stream = connect(address)?;
        let name = ServerName::from(stream.peer_addr()?.ip());
        Ok(StdConnection::new(Client::new(ClientConnection::new(config, name)?, stream)))
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;
type Server = StreamOwned<ServerConnection, TcpStream>;

impl Wire for Client {
    fn another(&self) -> Result<Self> {
        bail!("streams are not measured over TLS")
    }
}

impl Wire for Server {
    fn another(&self) -> Result<Self> {
        bail!("a server connects to nothing")
    }
}
