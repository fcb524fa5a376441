//! A server in the test's own process.

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::link::Link;
use crate::{Channel, ServeError, ServerBuilder};

/// The address that errors and logs name. No port: the channel's connector opens streams.
const ADDRESS: &str = "tcp://test-server:1";

/// A server that runs in the test's own process, behind a [`Link`]. Dropped, it shuts down in the
/// background as by [`shutdown`](Self::shutdown).
///
/// # Examples
///
/// ```
/// # use farcall::{ServeError, Server, Service};
/// use farcall::testing::TestServer;
///
/// # async fn example(service: impl Service) -> Result<(), ServeError> {
/// let server = TestServer::start(Server::builder().add_service(service));
/// let channel = server.channel();
/// // ..calls, and then an end that waits for them:
/// server.shutdown().await
/// # }
/// ```
#[derive(Debug)]
pub struct TestServer {
    link: Link,
    shutdown: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ServeError>>,
}

impl TestServer {
    /// Starts a server with these services and settings, behind a link of its own.
    #[must_use]
    pub fn start(server: ServerBuilder) -> Self {
        Self::start_behind(&Link::new(), server)
    }

    /// Starts a server behind `link`, in the place of one that was there: clients that have a
    /// channel over the link reach it with their next connection.
    #[must_use]
    pub fn start_behind(link: &Link, server: ServerBuilder) -> Self {
        let (shutdown, signal) = oneshot::channel();
        let serving = server.build().serve_incoming(link.incoming());
        let running = tokio::spawn(serving.with_graceful_shutdown(async {
            // The sender of a server that was dropped is gone, which is a signal, too.
            let _: Result<(), _> = signal.await;
        }));
        Self { link: link.clone(), shutdown, running }
    }

    /// The network before the server.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// A new channel to the server, which connects at its first call. For one with settings of its
    /// own: `Channel::builder(..)?.connect_with_connector(server.link().connector())`.
    ///
    /// # Panics
    ///
    /// Never: the address is one.
    #[must_use]
    pub fn channel(&self) -> Channel {
        match Channel::builder(ADDRESS) {
            Ok(builder) => builder.connect_with_connector(self.link.connector()),
            Err(error) => unreachable!("{ADDRESS} is an address: {error}"),
        }
    }

    /// Stops taking calls, and waits for those that are in flight, as long as the server's drain
    /// timeout allows.
    ///
    /// # Errors
    ///
    /// Returns the error with which the server ended.
    ///
    /// # Panics
    ///
    /// Resumes the panic of the server's task, if it has panicked.
    pub async fn shutdown(self) -> Result<(), ServeError> {
        // It fails when the server has ended by itself.
        let _: Result<(), ()> = self.shutdown.send(());
        match self.running.await {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and the server with it.
                Err(_) => Ok(()),
            },
        }
    }
}
