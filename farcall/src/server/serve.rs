//! The future of a server that serves.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use tokio::sync::oneshot;

use super::ServeError;

/// A server at work: the future of [`ServerBuilder::serve`](super::ServerBuilder::serve),
/// [`Listener::serve`](super::Listener::serve) and
/// [`Server::serve_incoming`](super::Server::serve_incoming).
///
/// It does nothing until it is polled. It serves until a signal shuts it down, or until its source
/// of connections has ended and the open connections have ended, too. Without either it never ends.
///
/// # Errors
///
/// Ends with [`ServeError`] if the server cannot start, or can never accept connections again.
///
/// # Cancel safety
///
/// Dropping it stops the server: it accepts no more connections, and closes open ones at once.
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
/// farcall::Server::builder()
///     .add_service(service)
///     .serve("auto://0.0.0.0:7000")
///     .with_graceful_shutdown(async {
///         let _ = tokio::signal::ctrl_c().await;
///     })
///     .await
/// # }
/// ```
#[must_use = "a server does nothing unless it is awaited or spawned"]
pub struct Serve {
    serving: BoxFuture<'static, Result<(), ServeError>>,
    signal: BoxFuture<'static, ()>,
    /// Present until the signal.
    shutdown: Option<oneshot::Sender<()>>,
}

impl Serve {
    /// `start` gets the future that shuts the server down.
    pub(super) fn new<F>(start: impl FnOnce(BoxFuture<'static, ()>) -> F) -> Self
    where
        F: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let (shutdown, shut_down) = oneshot::channel();
        // The sender lives as long as the server runs.
        let serving = start(Box::pin(shut_down.map(drop)));
        Self {
            serving: Box::pin(serving),
            signal: Box::pin(future::pending()),
            shutdown: Some(shutdown),
        }
    }

    /// Shuts the server down when `signal` is ready. With several signals the first one counts.
    ///
    /// The server first runs what [`ServerBuilder::on_drain`](super::ServerBuilder::on_drain) has.
    /// Then it rejects new calls, gives those in flight the builder's
    /// [`drain_timeout`](super::ServerBuilder::drain_timeout), and closes its connections. Clients
    /// make their calls elsewhere. A call that was sent already ends as not executed, and the
    /// client's channel sends it again if possible (see [`crate::NotExecuted`]).
    ///
    /// A signal that is ready before the server starts ends it before it accepts a connection,
    /// unless an `on_drain` future takes time. An address that cannot be listened on is still an
    /// error.
    ///
    /// Each listener of a server has a signal of its own, and drains its own connections. Give all
    /// of them the same signal to drain them together. The `on_drain` futures run once per server.
    pub fn with_graceful_shutdown(
        mut self,
        signal: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.signal = Box::pin(future::select(self.signal, Box::pin(signal)).map(drop));
        self
    }
}

impl Future for Serve {
    type Output = Result<(), ServeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The signal is not polled again after it was ready.
        if self.shutdown.is_some() && self.signal.poll_unpin(cx).is_ready() {
            let shutdown = self.shutdown.take();
            // A server that has failed receives nothing.
            let _: Option<Result<(), ()>> = shutdown.map(|shutdown| shutdown.send(()));
        }
        self.serving.poll_unpin(cx)
    }
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_shutting_down = self.shutdown.is_none();
        f.debug_struct("Serve").field("is_shutting_down", &is_shutting_down).finish_non_exhaustive()
    }
}
