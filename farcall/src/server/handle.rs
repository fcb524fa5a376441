//! A server: its services, its settings, and its listeners.

use std::io;
use std::sync::Arc;

use rpc_core::server::Listen;

use super::admin::AdminState;
use super::error::ServeFault;
use super::{
    IntoIncoming, Listener, Serve, ServeError, ServerBuilder, ServerSettings, SocketListener,
};
use crate::rdma::Rdma;
use crate::tls::ServerTls;
use crate::{ConnectionInfo, IntoAddress};

/// A set of services and the rules under which they are served. Clones are the same server.
///
/// [`Server::builder`] makes one. Most programs need no value of this type, and call
/// [`ServerBuilder::serve`]. With one value a program serves several listeners under common limits,
/// and asks what the server is doing.
#[derive(Debug, Clone)]
pub struct Server {
    pub(super) core: rpc_core::Server,
    /// Those that it was built with.
    pub(super) settings: Arc<ServerSettings>,
    pub(super) rdma: Rdma,
    pub(super) tls: Option<ServerTls>,
    pub(super) admin: Option<Arc<AdminState>>,
    /// A setting that names a method or a service that the server does not have. The server cannot
    /// serve then.
    pub(super) not_served: Option<String>,
}

impl Server {
    /// A builder with default rules and no services.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
    /// farcall::Server::builder().add_service(service).serve("auto://0.0.0.0:7000").await
    /// # }
    /// ```
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Listens on `address`. Listeners of one server share its limits, and drain on their own.
    ///
    /// A server at an `rdma://` address also takes clients that stay on TCP: the client decides
    /// whether RDMA is required.
    ///
    /// A listener that begins to serve writes one line of INFO with the target `farcall::server`:
    /// the address with its port, and at `auto://` and `rdma://` the RDMA ports that clients can
    /// have, or the reason why they have none.
    ///
    /// # Errors
    ///
    /// Returns [`ServeError`] if the text is no address, or the operating system refuses it; if
    /// RDMA is impossible at an `rdma://` address (see [`ServerBuilder::rdma_required`]); and if a
    /// setting names a method or a service that the server does not have.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn Error>> {
    /// let server = farcall::Server::builder().add_service(service).build();
    /// let hosts = server.bind("auto://0.0.0.0:7000").await?.serve();
    /// let neighbors = server.bind("unix:///run/orders").await?.serve();
    /// tokio::try_join!(hosts, neighbors)?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn bind(&self, address: impl IntoAddress) -> Result<Listener, ServeError> {
        self.check_methods()?;
        Listener::bind(self.clone(), address.into_address()?).await
    }

    /// Takes a TCP or Unix listener that the program made. On TCP, clients may ask for RDMA, as at
    /// an `auto://` address.
    ///
    /// # Errors
    ///
    /// Returns [`ServeError`] if the operating system does not tell the listener's address, or
    /// refuses to make it non-blocking; for a listener of the standard library also outside of a
    /// tokio runtime; and if a setting names a method or a service that the server does not have.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(server: farcall::Server) -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = server.bind_listener(std::net::TcpListener::bind("127.0.0.1:0")?)?;
    /// println!("listening on {}", listener.local_address());
    /// listener.serve().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_listener(&self, socket: impl SocketListener) -> Result<Listener, ServeError> {
        self.check_methods()?;
        Listener::from_socket(self.clone(), socket)
    }

    /// Serves the connections of a listener that the program made, or of a stream of byte streams;
    /// [`IntoIncoming`] lists the sources. A stream may end: [`Serve`] then waits for the open
    /// connections.
    ///
    /// The server logs an error of such a stream and polls it again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(server: farcall::Server) -> Result<(), farcall::ServeError> {
    /// // A stream in memory, as a test may want it.
    /// let (client, ours) = tokio::io::duplex(64 << 10);
    /// let incoming = futures::stream::iter([Ok::<_, std::io::Error>(ours)]);
    /// server.serve_incoming(incoming).await
    /// # }
    /// ```
    pub fn serve_incoming<K>(&self, incoming: impl IntoIncoming<K>) -> Serve {
        let server = self.clone();
        Serve::new(|shutdown| async move {
            server.check_methods()?;
            let incoming = incoming.into_incoming(&server)?;
            let served = server.serve_until(incoming, shutdown).await;
            served.map_err(|reason| ServeFault::Incoming { reason }.into())
        })
    }

    /// Serves a listener, and samples the server for operators meanwhile.
    pub(super) async fn serve_until(
        &self,
        listener: impl Listen,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let serving = self.core.serve_until(listener, shutdown);
        let Some(admin) = &self.admin else { return serving.await };
        tokio::select! {
            served = serving => served,
            never = admin.watch() => match never {},
        }
    }

    fn check_methods(&self) -> Result<(), ServeError> {
        match self.not_served.clone() {
            None => Ok(()),
            Some(reason) => Err(ServeFault::Method { reason }.into()),
        }
    }

    /// Returns the handle to the server's RDMA devices: its builder's, or the process-wide one.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Returns the handle to the server's TLS, to reload its files.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// The calls that count towards [`ServerBuilder::max_calls`] now: those of which the handlers
    /// have not ended.
    #[must_use]
    pub fn calls_running(&self) -> u64 {
        self.core.calls_running()
    }

    /// The bytes that count towards [`ServerBuilder::max_memory`] now.
    #[must_use]
    pub fn memory_held(&self) -> u64 {
        self.core.memory_held()
    }

    /// The bytes that [`memory_held`](Self::memory_held) may come to:
    /// [`ServerBuilder::max_memory`], or its default.
    #[cfg(feature = "metrics")]
    pub(crate) fn memory_limit(&self) -> u64 {
        self.core.memory_limit()
    }

    /// Returns the state of every open connection.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.core.connections()
    }
}
