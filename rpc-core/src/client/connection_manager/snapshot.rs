//! The published state of a channel's manager, and its answer to callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Established, Path};
use crate::connect::{ConnectError, ConnectFault, ConnectionInfo};
use crate::policy::breaker::PathCounts;
use crate::policy::failover::{Failover, Refusal};

/// The state of a channel's connection. Callers read it; the manager's task alone changes it.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) failover: Failover<Established>,
    /// Number of connections made.
    pub(super) made_count: u64,
    /// The transport of the last connection.
    pub(super) transport: Option<&'static str>,
    /// Number of times that the backoff was reset.
    pub(super) resets: u64,
    pub(super) answer: Answer,
}

/// The manager's answer to the callers that have asked for a connection.
#[derive(Debug)]
pub(super) struct Answer {
    /// It is the answer to the requests with this number and below.
    pub(super) up_to: u64,
    /// The connection, or the reason why there is none.
    pub(super) outcome: Result<(), Arc<ConnectError>>,
}

impl Snapshot {
    pub(super) fn new(failover: Failover<Established>) -> Self {
        Self {
            failover,
            made_count: 0,
            transport: None,
            resets: 0,
            answer: Answer { up_to: 0, outcome: Ok(()) },
        }
    }

    /// The current connection, if calls can be started on it.
    pub(super) fn open(&self) -> Option<Established> {
        let connection = self.failover.connection()?;
        // The driver notes the end of a connection a moment later. The connection knows it at once.
        connection.is_open().then(|| connection.clone())
    }

    /// Completes a connection's `info` with the reason why it is not on the upgraded path.
    pub(super) fn info(&self, mut info: ConnectionInfo) -> ConnectionInfo {
        // The last attempt may have been made after the connection.
        let reason = self.failover.breaker().reason().filter(|_| !info.is_upgraded);
        if let Some(reason) = reason {
            info.fallback = Some(reason.to_string());
        }
        info
    }

    /// Returns the path of calls on the connection with this `info`, or without a connection.
    pub(super) fn path(&self, info: Option<ConnectionInfo>, now: Instant) -> Path {
        let transport = info.as_ref().map(|info| info.transport);
        if let Some(ConnectionInfo { transport, is_upgraded: true, .. }) = info {
            return Path::Upgraded { transport };
        }
        let breaker = self.failover.breaker();
        let broken = breaker.broken();
        // A path that never carried a call is not broken, and is described as a fallback below.
        if let Some((reason, due)) = broken.filter(|_| breaker.was_used()) {
            let retry_in = due.saturating_duration_since(now);
            return Path::Broken { transport, reason: reason.to_string(), retry_in };
        }
        match info {
            Some(ConnectionInfo { transport, fallback: Some(reason), .. }) => {
                let retry_in = broken.map(|(_, due)| due.saturating_duration_since(now));
                let reason = breaker.reason().map_or(reason, ToString::to_string);
                Path::Fallback { transport, reason, retry_in }
            }
            Some(ConnectionInfo { transport, .. }) => Path::Direct { transport },
            None => {
                let reconnect = self.failover.reconnect();
                let (reason, due) = reconnect.backing_off(now).unzip();
                Path::Disconnected {
                    reason: reason.or(reconnect.failure()).map(ToString::to_string),
                    retry_in: due.map(|due| due.saturating_duration_since(now)),
                }
            }
        }
    }

    /// Returns the number of failures and returns of the upgraded path.
    pub(super) fn path_counts(&self) -> PathCounts {
        let breaker = self.failover.breaker();
        PathCounts { failovers: breaker.failovers(), failbacks: breaker.failbacks() }
    }
}

/// The refusal of an attempt that is not due yet; the time is rounded up, so that a caller who
/// waits for that long does not come too early.
pub(super) fn waiting(Refusal { reason, wait }: Refusal) -> ConnectError {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    ConnectError::from(ConnectFault::Waiting { reason, wait: Duration::from_millis(wait_ms) })
}

/// The requests of callers to the driver so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Requests {
    /// Requests for a connection.
    pub(super) count: u64,
    /// Requests to reset the backoff.
    pub(super) resets: u64,
}
