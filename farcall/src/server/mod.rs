//! Serving: from services to an address.

mod builder;
mod incoming;
mod listener;

#[cfg(feature = "settings")]
pub(crate) use builder::LiveServer;
pub use builder::ServerBuilder;
pub use incoming::IntoIncoming;
#[doc(hidden)]
pub use incoming::kind;
pub use listener::{Listener, ServeError};
pub use rpc_core::server::{
    Authorize, CallContext, HandlerFuture, InterceptedService, LayeredService, PeerExtensions,
    PeerInfo, ServerCall, ServerRequest, ServerResponse, ServerStack, Service, intercepted,
    layered, layered_methods,
};

pub use crate::endpoint::SocketListener;
use crate::rdma::Rdma;
use crate::tls::ServerTls;
use crate::{Config, ConnectionInfo};

/// A set of services and the rules under which they are served. Clones are the same server.
///
/// [`Server::builder`] is where one begins. Most programs need no value of this type: they say
/// [`ServerBuilder::serve`]. With one value a program serves several listeners under common limits,
/// and asks what the server is doing.
#[derive(Debug, Clone)]
pub struct Server {
    core: rpc_core::Server,
    config: Config,
    rdma: Rdma,
    tls: Option<ServerTls>,
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

    /// Serves the connections of `incoming` for ever, or until it has ended and those that are
    /// open have ended too. [`IntoIncoming`] lists what may be given.
    ///
    /// # Errors
    ///
    /// When a listener cannot be prepared, or can never accept again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve<K>(&self, incoming: impl IntoIncoming<K>) -> Result<(), ServeError> {
        self.serve_until(incoming, std::future::pending()).await
    }

    /// Serves the connections of `incoming` until `shutdown` is ready, or as
    /// [`serve`](Self::serve) until they have ended; then refuses new calls,
    /// gives those in flight the builder's drain timeout, and closes. Clients make their calls
    /// elsewhere; a call that they had sent already comes back marked as not executed, and they
    /// start it again by themselves where they can (see [`crate::NotExecuted`]).
    ///
    /// # Errors
    ///
    /// As [`Server::serve`].
    ///
    /// # Cancel safety
    ///
    /// As [`Server::serve`].
    pub async fn serve_until<K>(
        &self,
        incoming: impl IntoIncoming<K>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let listener = incoming.into_incoming(&self.config, &self.rdma, self.tls.as_ref())?;
        let served = self.core.serve_until(listener, shutdown).await;
        served.map_err(|reason| ServeError::Incoming { reason })
    }

    /// The rules for endpoints that bring none.
    fn config(&self) -> &Config {
        &self.config
    }

    /// The handle to the server's RDMA devices: the one that its builder was given, or its own. An
    /// [`Endpoint`](crate::Endpoint) may have another.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// The handle to the server's TLS, to reload its files.
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

    /// What every open connection says of itself.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.core.connections()
    }
}
