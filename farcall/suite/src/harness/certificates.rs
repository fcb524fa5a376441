//! The certificates of both sides of the path over TLS, of an authority that this process makes.

use std::sync::OnceLock;

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

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
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let ca = || Pem::bytes(authority.pem());
    let leaf = |name: &str| -> Result<_, rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![name.to_owned()])?;
        let cert = params.signed_by(&key, &authority)?;
        Ok((Pem::bytes(cert.pem()), Pem::bytes(key.serialize_pem())))
    };
    let (cert, key) = leaf("127.0.0.1")?;
    let server = ServerTlsConfig::new(cert, key).with_client_ca(ca());
    let (cert, key) = leaf("client.example")?;
    let client = ClientTlsConfig::default().with_ca(ca()).with_cert(cert, key);
    Ok(Certificates { server: ServerTls::new(server)?, client: ClientTls::new(client)? })
}
