//! Ways to start a server: a builder, listeners, and streams of connections.

use super::error::ServeFault;
use super::{IntoIncoming, Listener, Serve, ServeError, Server, ServerBuilder, SocketListener};
use crate::IntoAddress;

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
}
