//! Servers for the command to talk to.

use farcall::server::Admin;
use farcall::tls::{Pem, ServerTls, ServerTlsConfig};
use farcall::{Server, ServerBuilder};
use farcall_probe::Probe;
use farcall_probe::proto::probe_rpc::ProbeService;
use farcall_probe::proto::probe_server::ProbeServer;
use farcall_testkit::certificates::{Authority, Wanted};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic_reflection::pb::v1 as reflection;

/// A server that ends with the test.
pub(crate) struct Running {
    /// Its address, as the command takes it.
    pub(crate) address: String,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns the host and port of the address.
    pub(crate) fn authority(&self) -> &str {
        self.address.split_once("://").map_or(&self.address, |(_, authority)| authority)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves at `address`.
pub(crate) async fn serve(builder: ServerBuilder, address: &str) -> Running {
    let listener = builder.bind(address).await.unwrap_or_else(|error| panic!("{error}"));
    let address = listener.local_address().to_string();
    Running { address, task: tokio::spawn(async move { drop(listener.serve().await) }) }
}

/// A farcall server with the probe's service, health, reflection and its state for operators.
pub(crate) fn complete() -> ServerBuilder {
    let (_, health) = tonic_health::server::health_reporter();
    described(bare())
        .admin(Admin::loopback())
        .add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Adds reflection of the probe's package and health.
pub(crate) fn described(builder: ServerBuilder) -> ServerBuilder {
    let described = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(farcall_probe::DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap_or_else(|error| panic!("{error}"));
    builder.add_grpc_service(described, reflection::FILE_DESCRIPTOR_SET)
}

/// A farcall server with the probe's service alone.
pub(crate) fn bare() -> ServerBuilder {
    Server::builder().add_service(ProbeService::new(Probe::new().0))
}

/// [`complete`] at a free TCP port.
pub(crate) async fn over_tcp() -> Running {
    serve(complete(), "tcp://127.0.0.1:0").await
}

/// A server of tonic with the probe's service, and with reflection in its old version alone.
pub(crate) async fn tonic() -> Running {
    let any = ([127, 0, 0, 1], 0).into();
    let incoming = TcpIncoming::bind(any).unwrap_or_else(|error| panic!("{error}"));
    let address = incoming.local_addr().unwrap_or_else(|error| panic!("{error}"));
    let server = tonic_server(tonic::transport::Server::builder());
    let task = tokio::spawn(async move { drop(server.serve_with_incoming(incoming).await) });
    Running { address: format!("grpc://{address}"), task }
}

/// The same server at a Unix socket in `folder`, whose path is the address.
pub(crate) fn tonic_at_socket(folder: &TempDir) -> Running {
    let path = folder.path().join("tonic.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap_or_else(|error| panic!("{error}"));
    let incoming = futures::stream::unfold(listener, async |listener| {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = tonic_server(tonic::transport::Server::builder());
    let task = tokio::spawn(async move { drop(server.serve_with_incoming(incoming).await) });
    Running { address: path.display().to_string(), task }
}

/// The same server with TLS.
pub(crate) async fn tonic_with_tls(certificates: &Certificates) -> Running {
    let any = ([127, 0, 0, 1], 0).into();
    let incoming = TcpIncoming::bind(any).unwrap_or_else(|error| panic!("{error}"));
    let address = incoming.local_addr().unwrap_or_else(|error| panic!("{error}"));
    let identity = tonic::transport::Identity::from_pem(&certificates.cert, &certificates.key);
    let tls = tonic::transport::ServerTlsConfig::new().identity(identity);
    let builder = tonic::transport::Server::builder().tls_config(tls);
    let server = tonic_server(builder.unwrap_or_else(|error| panic!("{error}")));
    let task = tokio::spawn(async move { drop(server.serve_with_incoming(incoming).await) });
    Running { address: format!("grpcs://{address}"), task }
}

fn tonic_server(mut builder: tonic::transport::Server) -> tonic::transport::server::Router {
    let described = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(farcall_probe::DESCRIPTOR_SET)
        .build_v1alpha()
        .unwrap_or_else(|error| panic!("{error}"));
    builder.add_service(ProbeServer::new(Probe::new().0)).add_service(described)
}

/// The name in the certificate of [`Certificates`].
pub(crate) const NAME: &str = "localhost";

/// A certificate, and the file of the authority that vouches for it.
pub(crate) struct Certificates {
    /// The path of the authority's file.
    pub(crate) ca: String,
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Certificates {
    /// Makes them, with the authority's file in `folder`.
    pub(crate) fn new(folder: &TempDir) -> Self {
        let made = || -> Result<_, Box<dyn std::error::Error>> {
            let authority = Authority::new("command's authority")?;
            let leaf = authority.issue(Wanted::named(NAME))?;
            let path = folder.path().join("ca.pem");
            std::fs::write(&path, authority.pem())?;
            Ok(Self { ca: path.display().to_string(), cert: leaf.cert, key: leaf.key })
        };
        made().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns TLS of a farcall server.
    pub(crate) fn server_tls(&self) -> ServerTls {
        let config = ServerTlsConfig::new(Pem::bytes(&*self.cert), Pem::bytes(&*self.key));
        ServerTls::new(config).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// An authority in a file, and TLS of a server that it vouches for.
pub(crate) fn certificates(folder: &TempDir) -> (String, ServerTls) {
    let made = Certificates::new(folder);
    let tls = made.server_tls();
    (made.ca, tls)
}
