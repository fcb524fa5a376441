//! Serving: from services to an address.

mod builder;
mod incoming;
mod listener;

pub use builder::ServerBuilder;
pub use incoming::IntoIncoming;
#[doc(hidden)]
pub use incoming::kind;
pub use listener::{Listener, ServeError};
pub use rpc_core::server::{
    CallContext, HandlerFuture, InterceptedService, LayeredService, Listen, ListenerSettings,
    PeerExtensions, PeerInfo, ServerCall, ServerConnection, ServerRequest, ServerResponse,
    ServerSetup, ServerStack, Service, intercepted, layered, layered_methods,
};
pub use rpc_transport_tcp::StreamListener;

use std::io;

use rpc_core::connect::ConnectionInfo;

/// A set of services and the rules under which they are served. Clones are the same server.
///
/// [`Server::builder`] is where one begins. Most programs need no value of this type: they say
/// [`ServerBuilder::serve`]. With one value a program serves several listeners under common limits,
/// and asks what the server is doing.
#[derive(Debug, Clone)]
pub struct Server(rpc_core::Server);

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

    /// Serves the connections of `listener` for ever, or until it has ended and those that are
    /// open have ended too.
    ///
    /// # Errors
    ///
    /// When the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(&self, listener: impl Listen) -> io::Result<()> {
        self.0.serve(listener).await
    }

    /// Serves the connections of `listener` until `shutdown` is ready, or as
    /// [`serve`](Self::serve) until they have ended; then refuses new calls,
    /// gives those in flight the builder's drain timeout, and closes. Clients make their calls
    /// elsewhere; a call that they had sent already comes back marked as not executed, and they
    /// start it again by themselves where they can (see [`crate::NotExecuted`]).
    ///
    /// # Errors
    ///
    /// When the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// As [`Server::serve`].
    pub async fn serve_until(
        &self,
        listener: impl Listen,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        self.0.serve_until(listener, shutdown).await
    }

    /// The calls that count towards [`ServerBuilder::max_calls`] now: those of which the handlers
    /// have not ended.
    #[must_use]
    pub fn calls_running(&self) -> u64 {
        self.0.calls_running()
    }

    /// The bytes that count towards [`ServerBuilder::max_memory`] now.
    #[must_use]
    pub fn memory_held(&self) -> u64 {
        self.0.memory_held()
    }

    /// What every open connection says of itself.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.0.connections()
    }
}
