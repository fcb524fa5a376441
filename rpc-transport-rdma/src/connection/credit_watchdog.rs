//! The credit watchdog: logs when a connection has waited for credit for seconds, and ends it after
//! a minute; ends one whose READs are not answered.
//!
//! A peer grants as messages arrive, whatever its application does, so that a long wait means that
//! the peer is stuck or one of both has a fault. Each wait is logged once, with the state of the
//! window. The task that looks exists only while a connection waits, and is not the worker's own:
//! that may be what is stuck.
//!
//! Keepalive and the bootstrap find a peer that is gone. One that is there and never grants keeps
//! slots and memory that other connections need, for no longer than `release_timeout`, or what is
//! reported as a stall if that is longer.
//!
//! READs are answered by the peer's device. A device, or software in its place, that answers just
//! in time before the queue pair's retries are used up could hold this peer's share of READs and of
//! memory for as long as its frames are long. So each READ has `read_timeout` from the moment when
//! it is the next to be answered on its queue pair. Frames that the peer offered, and whose turn to
//! be read does not come in time, are refused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rpc_core::transport::CloseReason;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::worker::WorkerShared;

/// Far longer than a healthy peer takes, retries of lost packets included, and shorter than
/// keepalive's default bound of 40 s.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(5);

impl WorkerShared {
    /// Sees to it that a task looks after connections that wait for credit or for READs.
    pub(crate) fn watch(self: &Arc<Self>) {
        if !self.is_watched.load(Ordering::Relaxed) && !self.is_watched.swap(true, Ordering::SeqCst)
        {
            self.runtime.spawn(watch(Arc::downgrade(self)));
        }
    }
}

async fn watch(worker: Weak<WorkerShared>) {
    loop {
        let before = Instant::now();
        tokio::time::sleep(STALL_AFTER).await;
        // What was granted while this process stood still, or while user code blocked the worker,
        // may not have been looked at yet.
        let has_stood_still = before.elapsed() >= 2 * STALL_AFTER;
        let Some(worker) = worker.upgrade() else { return };
        // Before looking: who begins to wait after this starts a watch of its own.
        worker.is_watched.store(false, Ordering::SeqCst);
        let may_end = !has_stood_still && !worker.has_unread();
        let now = Instant::now();
        let connections = worker.connections();
        let waiting =
            connections.iter().filter(|connection| report(connection, now, may_end)).count();
        if waiting == 0 || worker.is_watched.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// Logs a wait that has become too long, and ends one that lasts; whether the connection waits.
fn report(connection: &Arc<Connection>, now: Instant, may_end: bool) -> bool {
    let read_timeout = connection.worker.config.read_timeout;
    let reading = connection.waited_for_read(now);
    if may_end && reading.is_some_and(|waited| waited >= read_timeout) {
        let words = format!("the peer has not answered a READ within {read_timeout:?}");
        connection.fail(CloseReason::Failed(format!("{words} (rdma.read_timeout)")));
        return false;
    }
    let timeout = connection.worker.config.release_timeout.max(STALL_AFTER);
    if may_end && connection.waited(now).is_some_and(|waited| waited >= timeout) {
        let words = format!("the peer granted no credit within {timeout:?} (rdma.release_timeout)");
        connection.fail(CloseReason::Failed(words));
        return false;
    }
    let is_getting = connection.refuse_late(now) || reading.is_some();
    let Some(stall) = connection.stall(now, STALL_AFTER) else { return is_getting };
    if let Some(words) = stall {
        let (tag, device) = (connection.tag, connection.worker.attachment.device().name());
        rpc_core::limited_log!(
            target: "farcall::rdma",
            of_process, WARN, "an RDMA connection stalls", tag, device, %words
        );
    }
    true
}
