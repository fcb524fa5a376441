//! Failback: the task that retries the upgraded path while calls use the path below.
//!
//! It makes a new connection and gives it to the channel only when the path is proven, so that the
//! current connection is never at risk. It holds the channel weakly: the last clone of a channel
//! closes the connection and aborts this task.

use std::sync::{Arc, Weak};

use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;

use super::{Connect, Connection};
use crate::connect::{ConnectError, Wanted};
use crate::runtime::long_wait::wait_until;

/// What an attempt needs, without the channel.
pub(super) struct FailbackAttempt {
    pub(super) connector: Arc<dyn Connect>,
    /// Held by the task that makes a connection.
    pub(super) connecting: Arc<tokio::sync::Mutex<()>>,
    /// How many attempts callers wait for.
    pub(super) pending_callers: watch::Receiver<usize>,
}

impl FailbackAttempt {
    /// Connects over the upgraded path; `None` when a caller needed a connection meanwhile, or the
    /// channel is gone.
    async fn make(&mut self) -> Option<Connected> {
        self.pending_callers.wait_for(|count| *count == 0).await.ok()?;
        let alone = Arc::clone(&self.connecting).lock_owned().await;
        let attempted_at = Instant::now().into_std();
        tokio::select! {
            biased;
            _ = self.pending_callers.wait_for(|count| *count > 0) => None,
            connected = self.connector.connect(Wanted::Upgraded) => {
                Some(Connected { attempted_at, connected, _alone: alone })
            }
        }
    }
}

/// The channel's connection, as this task sees it.
pub(super) trait PathOwner: Send + Sync + 'static {
    /// When the path is to be tried again; `None` ends the task.
    fn next_attempt(&self) -> Option<std::time::Instant>;

    /// Takes the outcome of an attempt.
    fn finish_attempt(
        self: Arc<Self>,
        attempted_at: std::time::Instant,
        connected: Result<Arc<dyn Connection>, ConnectError>,
    );
}

/// What became of an attempt. Until it is dropped, no other task connects.
struct Connected {
    attempted_at: std::time::Instant,
    connected: Result<Arc<dyn Connection>, ConnectError>,
    _alone: OwnedMutexGuard<()>,
}

/// Retries until the path is back, or until no call would use it.
pub(super) async fn failback(owner: Weak<impl PathOwner>, mut attempt: FailbackAttempt) {
    loop {
        let due = owner.upgrade().and_then(|owner| owner.next_attempt());
        let Some(due) = due else { return };
        wait_until(due).await;
        // The connection in use may have ended meanwhile, and no call has noticed.
        let is_wanted = owner.upgrade().is_some_and(|owner| owner.next_attempt().is_some());
        if !is_wanted {
            return;
        }
        let Some(Connected { attempted_at, connected, _alone }) = attempt.make().await else {
            continue;
        };
        match (owner.upgrade(), connected) {
            (Some(owner), connected) => owner.finish_attempt(attempted_at, connected),
            (None, Ok(connection)) => return connection.close(),
            (None, Err(_)) => return,
        }
    }
}
