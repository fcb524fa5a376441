//! TLS on TCP: certificates, mutual TLS, and how they are rotated. Feature `tls`.
//!
//! A server takes a [`ServerTls`] by [`ServerBuilder::tls`](crate::ServerBuilder::tls), and a
//! channel a [`ClientTls`] by [`ChannelBuilder::tls`](crate::ChannelBuilder::tls). It holds for
//! `tcp://`, `auto://`, `rdma://` and `grpcs://`, and for `dns://` and lists of these. Where RDMA
//! is agreed on, the connection on which that happens has TLS. The packets of RDMA itself are not
//! encrypted: see [`require_encryption`](crate::ChannelBuilder::require_encryption). With
//! `unix://` and `inproc://`, which do not leave the host, and with `grpc://` `tls` is an error.
//!
//! TLS 1.3 is spoken, by rustls with the cryptography of ring, or of aws-lc-rs with the feature
//! `tls-aws-lc-rs`.
//!
//! # Examples
//!
//! ```no_run
//! # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use farcall::tls::{ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig};
//! use farcall::{Channel, Server};
//!
//! // A server that accepts clients with a certificate of its own authority (mutual TLS).
//! let config = ServerTlsConfig::new("tls/server.pem", "tls/server.key");
//! let tls = ServerTls::new(config.with_client_ca("tls/ca.pem"))?;
//! let server = Server::builder().add_service(service).tls(&tls).bind("auto://0.0.0.0:7000");
//! tokio::spawn(server.await?.serve());
//!
//! let config = ClientTlsConfig::default()
//!     .with_ca("tls/ca.pem")
//!     .with_cert("tls/client.pem", "tls/client.key");
//! let tls_of_channel = ClientTls::new(config)?;
//! let channel = Channel::builder("auto://inventory:7000")?.tls(&tls_of_channel).connect().await?;
//!
//! // After new files were put in place: from the next accept on.
//! tls.reload()?;
//! # drop(channel);
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

#[cfg(feature = "grpc")]
use rpc_core::connect::Alpn;
use rpc_core::server::OtherProtocol;
pub use rpc_core::transport::TlsInfo;
pub use rpc_transport_tcp::tls::{
    AlpnPolicy, ClientCerts, ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig, TlsError,
};
use rpc_transport_tcp::{TcpConnector, TcpListener};

/// The listener with TLS around what it accepts, where there is TLS. Clients may speak the `others`
/// beside farcall.
pub(crate) fn listener(
    listener: TcpListener,
    tls: Option<ServerTls>,
    others: &[Arc<dyn OtherProtocol>],
) -> TcpListener {
    match tls {
        Some(tls) => listener.with_tls(tls, others.iter().map(|other| other.alpn())),
        None => listener,
    }
}

/// The connector with TLS around its connections, where there is TLS. `host` is the name of the
/// server where it is not that of its address.
pub(crate) fn connector(
    connector: TcpConnector,
    tls: Option<&ClientTls>,
    host: Option<&str>,
) -> TcpConnector {
    match tls {
        Some(tls) => connector.with_tls(tls.clone(), host),
        None => connector,
    }
}

/// The connector with TLS that agrees on gRPC.
#[cfg(feature = "grpc")]
pub(crate) fn for_grpc(connector: TcpConnector) -> TcpConnector {
    connector.with_protocol(Alpn::GRPC)
}
