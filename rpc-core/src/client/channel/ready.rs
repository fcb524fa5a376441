//! When a channel tells tower that it is ready.
//!
//! tower picks among services by `poll_ready`: its `Balance` passes over a service that is pending
//! until it wakes the task that asked. A channel without a connection is therefore pending, and
//! makes the connection itself. Were it ready as soon as its backoff is over, the balancer would
//! try a dead server with a call after each delay, and the call would fail.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::ReusableBoxFuture;

use crate::client::connection_manager::ConnectionManager;
use crate::connect::ConnectError;

/// When a channel is ready, as a service of tower's.
#[derive(Debug, Default)]
pub(in crate::client) enum ReadyWhen {
    /// While it has a connection.
    #[default]
    Connected,
    /// The same, and it was asked while it had none: this future makes one.
    Connecting(ReusableBoxFuture<'static, Result<(), Arc<ConnectError>>>),
    /// At any time: each call finds out for itself, as its [`crate::Readiness`] says.
    Always,
}

/// A clone is asked by another task, which has to be woken by a future of its own.
impl Clone for ReadyWhen {
    fn clone(&self) -> Self {
        match self {
            Self::Connected | Self::Connecting(_) => Self::Connected,
            Self::Always => Self::Always,
        }
    }
}

impl ReadyWhen {
    /// Whether the channel of `manager` is ready.
    pub(in crate::client) fn poll(
        &mut self,
        manager: &Arc<ConnectionManager>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Arc<ConnectError>>> {
        loop {
            match self {
                Self::Always => return Poll::Ready(Ok(())),
                Self::Connected if manager.open().is_some() => return Poll::Ready(Ok(())),
                Self::Connected => {
                    let connecting = connect(Arc::clone(manager));
                    *self = Self::Connecting(ReusableBoxFuture::new(connecting));
                }
                Self::Connecting(connecting) => {
                    let outcome = ready!(connecting.poll(cx));
                    *self = Self::Connected;
                    // The connection may have gone since it was made: then another is.
                    if outcome.is_err() {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
    }
}

/// Waits until there is a connection, and makes the attempts that are due meanwhile.
///
/// # Errors
///
/// When no attempt can succeed any more.
async fn connect(manager: Arc<ConnectionManager>) -> Result<(), Arc<ConnectError>> {
    loop {
        // Before the attempt, so that no connection made after it is missed.
        let connected = manager.connected();
        match manager.connection().await {
            Ok(_) => return Ok(()),
            Err(error) if !error.may_pass() => return Err(error),
            Err(_) => {}
        }
        tokio::select! {
            () = sleep_until(Instant::from_std(manager.next_connect())) => {}
            () = connected => {}
        }
    }
}
