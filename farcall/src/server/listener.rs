//! A server at its address.

use std::io;

use thiserror::Error;

use super::Server;
use crate::{Address, BindError, Endpoint};

/// A server that could not be begun at its address, or that can go on no longer.
#[derive(Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The operating system accepts no connection there any more.
    #[error("cannot accept connections at {address} any more: {reason}")]
    Accept {
        /// The address.
        address: Address,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// The listener that the program has given accepts no connection any more.
    #[error("cannot accept connections any more: {reason}")]
    Incoming {
        /// The listener's reason.
        reason: io::Error,
    },
}

rpc_core::readable_debug!(ServeError);

/// A server that listens, and accepts no connection before it is told to serve.
///
/// Connections that clients make meanwhile wait in the operating system's backlog.
///
/// # Examples
///
/// A server at a port that the operating system chooses, as tests want it:
///
/// ```
/// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = farcall::Server::builder().add_service(service).bind("tcp://127.0.0.1:0").await?;
/// let address = listener.local_address().to_string();
/// let serving = tokio::spawn(listener.serve());
/// let channel = farcall::Channel::connect(&address).await?;
/// # drop((channel, serving));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    server: Server,
    endpoint: Endpoint,
}

impl Listener {
    pub(super) fn new(server: Server, endpoint: Endpoint) -> Self {
        Self { server, endpoint }
    }

    /// The address listened on, with the port that was taken.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        self.endpoint.address()
    }

    /// The server, to ask later what it is doing.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Serves for ever.
    ///
    /// # Errors
    ///
    /// When connections can never be accepted again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(self) -> Result<(), ServeError> {
        self.serve_with_shutdown(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready; see [`Server::serve_until`].
    ///
    /// # Errors
    ///
    /// As [`Listener::serve`].
    ///
    /// # Cancel safety
    ///
    /// As [`Listener::serve`].
    pub async fn serve_with_shutdown(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let address = self.endpoint.address().clone();
        let Server { core, rdma, .. } = &self.server;
        let served = core.serve_until(self.endpoint.into_listener(rdma), shutdown).await;
        served.map_err(|reason| ServeError::Accept { address, reason })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use futures::channel::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_server_listens_takes_a_client_and_shuts_down() {
        let listener = Server::builder().bind("tcp://127.0.0.1:0").await.unwrap();
        let address = listener.local_address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(listener.serve_with_shutdown(async {
            let _ = stopped.await;
        }));
        let channel = crate::Channel::connect(&address).await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
        drop(channel);
    }

    #[tokio::test]
    async fn a_socket_address_is_auto() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Server::builder().bind(address).await.unwrap();
        let bound = listener.local_address().to_string();
        assert!(bound.starts_with("auto://127.0.0.1:") && !bound.ends_with(":0"), "{bound}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_named_and_its_reason_is_said_once() {
        let first = Server::builder().bind("tcp://127.0.0.1:0").await.unwrap();
        let address = first.local_address().to_string();
        let error = Server::builder().serve(&address).await.unwrap_err();
        let words = error.to_string();
        assert!(words.starts_with(&format!("cannot listen on {address}: ")), "{words}");
        assert!(error.source().is_none(), "a report with causes would repeat it: {error:?}");
    }
}
