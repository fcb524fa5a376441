//! A load balancer within the test: it passes connections on, says first who the client is, and may
//! end TLS on either side without agreeing on a protocol.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_testkit::certificates::{Authority, Wanted};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A balancer that sends a prefix before each connection that it passes on.
#[derive(Clone, Default)]
pub(crate) struct Balancer {
    header: Vec<u8>,
    front: Option<TlsAcceptor>,
    back: Option<TlsConnector>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Balancer {
    /// One that says this first.
    pub(crate) fn saying(header: impl Into<Vec<u8>>) -> Self {
        Self { header: header.into(), ..Self::default() }
    }

    /// One that ends its clients' TLS, without ALPN.
    pub(crate) fn ending_tls(mut self, authority: &Authority) -> Self {
        let leaf = authority.issue(Wanted::named("127.0.0.1")).unwrap();
        let certificate = CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        self.front = Some(Arc::new(config).into());
        self
    }

    /// One that encrypts to its server, without ALPN.
    pub(crate) fn encrypting(mut self, authority: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        let pem = authority.pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        self.back = Some(Arc::new(config).into());
        self
    }

    /// Passes connections on to `server`; the address for clients.
    pub(crate) async fn start(self, server: &str) -> String {
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (this, server) = (self.clone(), server.clone());
                // An end of either side is what tests look at on the other.
                tokio::spawn(async move { drop(this.pass(client, &server).await) });
            }
        });
        address
    }

    async fn pass(self, client: TcpStream, server: &str) -> std::io::Result<()> {
        let mut to_server = TcpStream::connect(server).await?;
        to_server.write_all(&self.header).await?;
        let mut back: Box<dyn Stream> = match self.back {
            Some(tls) => Box::new(tls.connect(name(), to_server).await?),
            None => Box::new(to_server),
        };
        let mut front: Box<dyn Stream> = match self.front {
            Some(tls) => Box::new(tls.accept(client).await?),
            None => Box::new(client),
        };
        copy_bidirectional(&mut front, &mut back).await?;
        Ok(())
    }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("127.0.0.1").unwrap()
}

/// A header of version 1.
pub(crate) fn line(client: SocketAddr) -> Vec<u8> {
    let (ip, port) = (client.ip(), client.port());
    let text = match client {
        SocketAddr::V4(_) => format!("PROXY TCP4 {ip} 192.0.2.9 {port} 443\r\n"),
        SocketAddr::V6(_) => format!("PROXY TCP6 {ip} 2001:db8::9 {port} 443\r\n"),
    };
    text.into_bytes()
}

/// A header of version 2 with a TLV of ALPN and one of a type of its own.
pub(crate) fn binary(client: SocketAddr) -> Vec<u8> {
    let port = client.port().to_be_bytes();
    let (family, addresses) = match client {
        SocketAddr::V4(v4) => (0x11, [&v4.ip().octets()[..], &[192, 0, 2, 9]].concat()),
        SocketAddr::V6(v6) => (0x21, [&v6.ip().octets()[..], &[9; 16]].concat()),
    };
    let tlvs = [&[1, 0, 2, b'h', b'2', 0xea, 2, 0][..], &[7; 512]].concat();
    raw(1, family, &[&addresses[..], &port, &[1, 187], &tlvs].concat())
}

/// A header of version 2 of this command, family and body.
pub(crate) fn raw(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x20 | command, family], &len, body].concat()
}
