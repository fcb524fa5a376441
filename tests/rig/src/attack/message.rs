//! Messages from the processes of a row to its conductor: one JSON value a line.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::AttackError;
use crate::conductor::process::Process;

/// Asks an honest client for what has happened since it was asked last.
pub(super) const CUT: &str = "cut";

/// Tells a client to begin with what exposes it to a hostile server.
pub(super) const EXPOSE: &str = "expose";

/// Asks a server or a hostile peer for its counts.
pub(super) const REPORT: &str = "report";

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

/// Reads what a process said.
pub(super) fn read<T: DeserializeOwned>(role: &'static str, line: &str) -> Result<T, AttackError> {
    let text = |_| AttackError::Unexpected { role, line: line.to_owned() };
    serde_json::from_str(line).map_err(text)
}

/// Asks a process for its message.
pub(super) fn ask<T: DeserializeOwned>(
    role: &'static str,
    process: &mut Process,
    text: &str,
) -> Result<T, AttackError> {
    read(role, &process.ask(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_through_its_line() {
        let deeds = Deeds { opened: 3, closed: 2, sent: 1 << 40, is_done: true };
        let line = serde_json::to_string(&deeds).unwrap();
        assert_eq!(read::<Deeds>("hostile peer", &line).unwrap(), deeds);
        let error = read::<Deeds>("hostile peer", "hello").unwrap_err().to_string();
        assert_eq!(error, "the hostile peer said `hello`");
    }
}
