//! The two ends of a TLS session, for tests.

use std::io;

use rcgen::{CertificateParams, KeyPair};
use rpc_core::connect::Alpn;
use tokio::net::{TcpListener, TcpStream};

use super::socket::TlsSocket;
use super::{AlpnPolicy, ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use crate::connection::socket::Socket as _;

/// The TLS handles of both sides.
pub(super) struct Both(ServerTls, ClientTls);

impl Both {
    pub(super) fn new() -> Self {
        Self::with_alpn(AlpnPolicy::default())
    }

    /// Creates both sides with this policy for a peer without ALPN.
    pub(super) fn with_alpn(policy: AlpnPolicy) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        let server = ServerTlsConfig::new(Pem::bytes(&cert), Pem::bytes(key.serialize_pem()));
        let client = ClientTlsConfig::default().with_ca(Pem::bytes(&cert));
        let (server, client) = (server.with_alpn(policy), client.with_alpn(policy));
        Self(ServerTls::new(server).unwrap(), ClientTls::new(client).unwrap())
    }

    /// Returns the two ends of a stream before their handshake.
    pub(super) async fn ends(
        &self,
        server_protocols: &[Alpn],
        client_protocols: &[Alpn],
    ) -> io::Result<[TlsSocket; 2]> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let connecting = TcpStream::connect(listener.local_addr()?);
        let (client, server) = tokio::try_join!(connecting, listener.accept())?;
        let client = self.1.connect(client, "127.0.0.1", client_protocols.into())?;
        Ok([client, self.0.accept(server.0, &server_protocols.into())?])
    }

    /// Returns the two ends of a session.
    pub(super) async fn session(&self) -> io::Result<[TlsSocket; 2]> {
        let [mut client, mut server] = self.ends(&[Alpn::FARCALL], &[Alpn::FARCALL]).await?;
        let (opened, accepted) = tokio::join!(client.open(), server.open());
        assert!(opened.unwrap().is_some() && accepted.unwrap().is_some());
        Ok([client, server])
    }
}
