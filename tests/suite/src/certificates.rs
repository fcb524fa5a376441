//! The certificates of both sides of the path over TLS, of an authority that this process makes.

use std::sync::OnceLock;

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig, TlsError};
use farcall_testkit::certificates::{Authority, CertificateError, Leaf, Wanted};

fn pems(leaf: &Leaf) -> (Pem, Pem) {
    (Pem::bytes(&leaf.cert), Pem::bytes(&leaf.key))
}

/// The certificates of an authority and of both sides.
#[derive(Debug)]
pub(crate) struct Pems {
    pub(crate) ca: String,
    /// For 127.0.0.1.
    pub(crate) server: Leaf,
    /// For client.example.
    pub(crate) client: Leaf,
}

impl Pems {
    pub(crate) fn make() -> Result<Self, CertificateError> {
        let authority = Authority::new("the suite's authority")?;
        let leaf = |name| authority.issue(Wanted::named(name));
        let (server, client) = (leaf("127.0.0.1")?, leaf("client.example")?);
        Ok(Self { ca: authority.pem(), server, client })
    }

    /// A server that asks for no certificates.
    pub(crate) fn server_config(&self) -> ServerTlsConfig {
        let (cert, key) = pems(&self.server);
        ServerTlsConfig::new(cert, key)
    }

    /// A server that requires a certificate.
    pub(crate) fn mutual_server(&self) -> Result<ServerTls, TlsError> {
        ServerTls::new(self.server_config().with_client_ca(Pem::bytes(&self.ca)))
    }

    fn client(&self) -> Result<ClientTls, TlsError> {
        let (cert, key) = pems(&self.client);
        let config = ClientTlsConfig::default().with_ca(Pem::bytes(&self.ca));
        ClientTls::new(config.with_cert(cert, key))
    }
}

/// TLS of both sides: each shows the other a certificate.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) server: ServerTls,
    pub(crate) client: ClientTls,
}

/// The same for all servers and channels of this process.
pub(crate) fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| make().expect("certificates of an authority of our own"))
}

fn make() -> Result<Certificates, Box<dyn std::error::Error>> {
    let pems = Pems::make()?;
    Ok(Certificates { server: pems.mutual_server()?, client: pems.client()? })
}
