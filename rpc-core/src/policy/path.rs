//! The path that calls of a channel take, and why it is not the upgraded one.

use std::fmt;
use std::time::Duration;

/// The path of a channel's calls at this moment, returned by `Channel::path`.
///
/// ```text
///                    connected                 the upgraded path failed
///  Disconnected ────────────────> Upgraded ─────────────────────────────> Broken
///       ^  │                          ^  ^                                   │
///       │  ├──> Fallback ── retried ──┘  └───────────────────────────────────┘
///       │  └──> Direct                               failback
///       └──────── closed
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// There is no connection. The channel connects at its next call.
    Disconnected {
        /// Why the last attempt to connect, or the last connection, failed; `None` before the first
        /// attempt and after a connection that ended in order.
        reason: Option<String>,
        /// Time until the next attempt. `None` if the next call makes one at once.
        retry_in: Option<Duration>,
    },
    /// Calls take the only path that the address names.
    Direct {
        /// The transport, for example `tcp` or `inproc`.
        transport: &'static str,
    },
    /// Calls take the upgraded path.
    Upgraded {
        /// The transport, for example `rdma`.
        transport: &'static str,
    },
    /// The upgraded path could not be had for this connection. If the reason can pass, the channel
    /// tries again in the background; otherwise when it connects again.
    Fallback {
        /// The transport in use, for example `tcp`.
        transport: &'static str,
        /// Why the upgraded path could not be had, by the last attempt.
        reason: String,
        /// Time until the next attempt over the path. `None` if the reason cannot pass.
        retry_in: Option<Duration>,
    },
    /// The upgraded path was in use, and failed.
    Broken {
        /// The transport in use meanwhile; `None` where there is no connection, as under `rdma://`.
        transport: Option<&'static str>,
        /// Why the path failed, or the last attempt to have it back.
        reason: String,
        /// Time until the next attempt over the path. Under `auto://` the channel tries in the
        /// background, as long as it has a connection. Under `rdma://` the next call from then on
        /// tries.
        retry_in: Duration,
    },
}

impl Path {
    /// The transport in use, for example `tcp` or `rdma`; `None` where there is no connection.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        match self {
            Self::Disconnected { .. } => None,
            Self::Broken { transport, .. } => *transport,
            Self::Direct { transport }
            | Self::Upgraded { transport }
            | Self::Fallback { transport, .. } => Some(transport),
        }
    }

    /// Why calls do not take the upgraded path, or why there is no connection.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Disconnected { reason, .. } => reason.as_deref(),
            Self::Direct { .. } | Self::Upgraded { .. } => None,
            Self::Fallback { reason, .. } | Self::Broken { reason, .. } => Some(reason),
        }
    }

    /// Returns the time until the channel tries again, if it has to wait.
    #[must_use]
    pub fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Disconnected { retry_in, .. } | Self::Fallback { retry_in, .. } => *retry_in,
            Self::Broken { retry_in, .. } => Some(*retry_in),
            Self::Direct { .. } | Self::Upgraded { .. } => None,
        }
    }

    /// Returns true if calls take the upgraded path.
    #[must_use]
    pub fn is_upgraded(&self) -> bool {
        matches!(self, Self::Upgraded { .. })
    }
}

/// One line for a log: the transport, and the reason where there is one.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport().unwrap_or("not connected"))?;
        let Some(reason) = self.reason() else { return Ok(()) };
        match self.retry_in() {
            Some(wait) => write!(f, " ({reason}; next attempt in {} ms)", wait.as_millis()),
            None => write!(f, " ({reason})"),
        }
    }
}

/// The number of failures and returns of a channel's upgraded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathCounts {
    /// Number of failures while it was in use.
    pub failovers: u64,
    /// Number of times that calls returned to it.
    pub failbacks: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_line_in_a_log() {
        let reason = "no route".to_owned();
        for (path, line) in [
            (Path::Upgraded { transport: "rdma" }, "rdma"),
            (Path::Direct { transport: "tcp" }, "tcp"),
            (
                Path::Fallback { transport: "tcp", reason: reason.clone(), retry_in: None },
                "tcp (no route)",
            ),
            (
                Path::Broken {
                    transport: None,
                    reason: reason.clone(),
                    retry_in: Duration::from_millis(5),
                },
                "not connected (no route; next attempt in 5 ms)",
            ),
            (Path::Disconnected { reason: None, retry_in: None }, "not connected"),
        ] {
            assert_eq!(path.to_string(), line);
        }
    }
}
