//! The messages of a row's processes to its conductor.

use serde::{Deserialize, Serialize};

/// Asks an honest client for what has happened since it was asked last.
pub(super) const CUT: &str = "cut";

/// Tells a client to begin with what exposes it to a hostile server.
pub(super) const EXPOSE: &str = "expose";

/// An honest client's summary of a period.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    /// Calls over connections that were there before, and that have been answered.
    pub(super) calls: u64,
    /// Those that failed.
    pub(super) errors: u64,
    /// The first failure, newcomers' included.
    pub(super) first_error: Option<String>,
    /// Latency of calls in microseconds. A call that still waits counts with its age.
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) max_us: u64,
    /// New connections with one call each, answered.
    pub(super) newcomers: u64,
    /// Those that failed.
    pub(super) newcomer_errors: u64,
    /// Calls to the hostile server or to the handler that blocks, however they ended.
    pub(super) exposed: u64,
    /// Those that failed.
    pub(super) exposed_errors: u64,
}

/// A server's own state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Standing {
    pub(super) connections: u64,
    pub(super) calls_in_flight: u64,
}

/// The deeds of a hostile peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Deeds {
    /// Connections that it has opened, or that a hostile server has accepted.
    pub(super) opened: u64,
    /// Those of them that the victim has closed.
    pub(super) closed: u64,
    /// Bytes that it has written.
    pub(super) sent: u64,
    /// Set when it has sent everything.
    pub(super) is_done: bool,
}
