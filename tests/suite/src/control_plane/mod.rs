//! A small control plane of xDS, in this process: it tells its clients of services, and writes down
//! what they answer. Its messages are Envoy's own, and its server is tonic's.

mod resources;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server as ads;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use futures::Stream;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming, async_trait};

pub use resources::{Health, Service, ServiceEndpoint};
pub use stream::Seen;

/// The resources of a control plane, by name, by type URL.
pub(crate) type Resources = BTreeMap<String, BTreeMap<String, Any>>;

/// A control plane that is served. Dropped, it ends its streams, and then its connections.
#[derive(Debug)]
pub struct ControlPlane {
    /// Streams end with it, and the server, too.
    resources: watch::Sender<Resources>,
    seen: Arc<Mutex<Seen>>,
    /// Listening address. `None` for a Unix socket.
    address: Option<SocketAddr>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// The state that the streams of a control plane share.
#[derive(Debug, Clone)]
struct DiscoveryService {
    resources: watch::Receiver<Resources>,
    seen: Arc<Mutex<Seen>>,
}

impl ControlPlane {
    /// Serves `services` at a port of loopback.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot listen.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn start(services: &[Service]) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), services).await
    }

    /// Serves `services` at an address.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot listen there.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn start_at(address: SocketAddr, services: &[Service]) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self::serve(Some(address), TcpListenerStream::new(listener), services))
    }

    /// Serves `services` at a Unix socket, as an agent beside a program does.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot listen there.
    pub fn start_at_socket(path: &Path, services: &[Service]) -> io::Result<Self> {
        let incoming = UnixListenerStream::new(UnixListener::bind(path)?);
        Ok(Self::serve(None, incoming, services))
    }

    fn serve<I, S>(address: Option<SocketAddr>, incoming: I, services: &[Service]) -> Self
    where
        I: Stream<Item = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let (resources, changes) = watch::channel(resources::of(services));
        let (seen, mut ending) = (Arc::<Mutex<Seen>>::default(), changes.clone());
        let service = DiscoveryService { resources: changes, seen: Arc::clone(&seen) };
        let server = Server::builder()
            .add_service(ads::AggregatedDiscoveryServiceServer::new(service))
            .serve_with_incoming_shutdown(incoming, async move {
                while ending.changed().await.is_ok() {}
            });
        Self { resources, seen, address, serving: tokio::spawn(server) }
    }

    /// Ends its streams and its connections.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: they end all the same.
    pub async fn stop(self) {
        let Self { resources, serving, .. } = self;
        drop(resources);
        // What a listener fails with is over with it.
        let _ = serving.await;
    }

    /// Returns the listening address.
    ///
    /// # Panics
    ///
    /// Panics if it listens on a Unix socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address.expect("it listens at a port")
    }

    /// Tells these services from now on, and no other ones.
    pub fn set(&self, services: &[Service]) {
        self.resources.send_replace(resources::of(services));
    }

    /// Tells something that is no resource where the endpoints of `service` are.
    pub fn set_garbage(&self, service: &Service) {
        let mut resources = resources::of(std::slice::from_ref(service));
        resources::break_endpoints(&mut resources);
        self.resources.send_replace(resources);
    }

    /// Returns the requests of clients so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

#[async_trait]
impl ads::AggregatedDiscoveryService for DiscoveryService {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream =
        BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (responses, sent) = tokio::sync::mpsc::channel(1);
        let resources = self.resources.clone();
        let seen = Arc::clone(&self.seen);
        // It ends with the stream of requests, or when no response can be sent.
        tokio::spawn(stream::serve(request.into_inner(), responses, resources, seen));
        Ok(Response::new(ReceiverStream::new(sent)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("this control plane tells the state of the world"))
    }
}
