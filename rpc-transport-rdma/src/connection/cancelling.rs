//! The bound on quarantine: how long a peer may keep what was taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rpc_core::transport::CloseReason;
use tokio::time::Instant;

use super::Connection;

impl Connection {
    /// Gives up what travels for a call, either way.
    pub(crate) fn abandon(self: &Arc<Self>, call: u64) {
        let abandoned = self.with_path(|path| {
            path.abandon(call);
            Ok(path.quarantined_count() > 0)
        });
        // A path that has ended has nothing to give up.
        if abandoned.unwrap_or(false) && !self.is_watching.swap(true, Ordering::AcqRel) {
            self.lane.runtime.spawn(Arc::clone(self).watch_quarantine());
        }
    }

    /// Ends the connection when the peer does not release in time what was taken back: the memory
    /// is free once the queue pair is gone, and never by time alone.
    async fn watch_quarantine(self: Arc<Self>) {
        let timeout = self.lane.config.cancel_timeout;
        loop {
            let Some(at) = self.look(|path| path.overdue_at(timeout)).flatten() else {
                self.is_watching.store(false, Ordering::Release);
                // One that came in between found a watcher, and this was it.
                let is_empty = self.look(|path| path.quarantined_count() == 0).unwrap_or(true);
                if is_empty || self.is_watching.swap(true, Ordering::AcqRel) {
                    return;
                }
                continue;
            };
            if at <= Instant::now() {
                self.lane.cancellations.overdue.add(1);
                return self.fail(CloseReason::Failed(format!(
                    "the peer did not release within {timeout:?} what was taken back from it \
                     (rdma.cancel_timeout)"
                )));
            }
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = tokio::time::sleep_until(at) => {}
            }
        }
    }
}
