//! Timeouts of the memory that a peer may READ: of frames that it was offered, and of cancelled
//! ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpc_core::transport::CloseReason;
use tokio::time::Instant;

use super::Connection;
use crate::connection::state::ConnectionState;
use crate::proto::rndv::send::AckTimeouts;

/// The shortest time between two looks at what the peer was offered.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Between two looks while the worker has not read what came: half of what makes it late, so that
/// it is found to have caught up soon, and rarely enough to cost nothing.
const UNREAD_LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Connection {
    /// Gives up what travels for a call, either way.
    pub(crate) fn abandon(self: &Arc<Self>, call: u64) {
        // A connection that has ended has nothing to give up.
        let _ = self.with_state(|state| {
            state.abandon(call);
            Ok(())
        });
        self.withdrawn.notify_one();
    }

    /// Stops what the peer takes back. For the worker's task.
    pub(super) fn handle_cancelled(self: &Arc<Self>, transfer: u32) {
        // A connection that has ended fetches nothing.
        let _ = self.with_state(|state| {
            state.handle_cancelled(transfer);
            Ok(())
        });
    }

    /// Starts the task that watches what the peer was offered, unless it runs.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.is_watching.swap(true, Ordering::AcqRel) {
            self.worker.runtime.spawn(Arc::clone(self).watch_releases());
        }
    }

    /// Revokes what the peer does not release in time after it was taken back, or ends the
    /// connection: memory that it was offered is free once its key is dead or the queue pair is
    /// gone, and never by time alone.
    async fn watch_releases(self: Arc<Self>) {
        let config = &self.worker.config;
        let timeouts =
            AckTimeouts { release: config.release_timeout, cancel: config.cancel_timeout };
        loop {
            let Some((at, is_withdrawn)) = self.next_overdue(timeouts) else { return };
            if at <= Instant::now() {
                if self.worker.has_unread() {
                    // What it says may have come, and user code keep the worker from reading it.
                    tokio::time::sleep(UNREAD_LOOK_INTERVAL).await;
                    continue;
                }
                if is_withdrawn && self.revoke_overdue(timeouts) {
                    continue;
                }
                return self.on_timeout(timeouts, is_withdrawn);
            }
            // Offers cancelled while still queued do not wake us, and have the shorter timeout.
            let soon = Instant::now().checked_add(timeouts.cancel.max(LOOK_INTERVAL_MIN));
            let look_at = soon.map_or(at, |soon| at.min(soon));
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = self.withdrawn.notified() => {}
                () = tokio::time::sleep_until(look_at) => {}
            }
        }
    }

    /// When the next release is overdue; `None` when there is nothing left to watch.
    fn next_overdue(&self, timeouts: AckTimeouts) -> Option<(Instant, bool)> {
        loop {
            let overdue = self.look(|state| state.overdue_at(timeouts)).flatten();
            if overdue.is_some() {
                return overdue;
            }
            self.is_watching.store(false, Ordering::Release);
            // What was offered in between found a watcher, and this was it.
            let is_exposed = self.look(ConnectionState::is_exposed).unwrap_or(false);
            if !is_exposed || self.is_watching.swap(true, Ordering::AcqRel) {
                return None;
            }
        }
    }

    fn revoke_overdue(self: &Arc<Self>, timeouts: AckTimeouts) -> bool {
        let now = Instant::now();
        self.with_state(|state| Ok(state.revoke_overdue(timeouts, now))).unwrap_or(false)
    }

    fn on_timeout(self: &Arc<Self>, timeouts: AckTimeouts, is_withdrawn: bool) {
        let words = if is_withdrawn {
            let timeout = timeouts.cancel;
            self.worker.cancellations.overdue.add(1);
            format!(
                "the peer did not release within {timeout:?} what was taken back from it \
                 (rdma.cancel_timeout)"
            )
        } else {
            let timeout = timeouts.release;
            format!(
                "the peer did not release within {timeout:?} what it was offered \
                 (rdma.release_timeout)"
            )
        };
        self.fail(CloseReason::Failed(words));
    }
}
