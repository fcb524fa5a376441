//! The server's role: a process that serves until it is told otherwise, or killed.

use std::time::Duration;

use farcall::Server;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::cancellations::Cancellations;
use super::config::{rdma, settings};
use crate::RigError;
use crate::conductor::message::{REPORT, line};
use crate::conductor::role::{Serving, answer_lines, misunderstood};
use farcall_suite::proto::probe_rpc::ProbeService;
use farcall_suite::{Failure, Probe};

/// Drain timeout of a server that is told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A server's report about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) connections: u64,
    pub(super) calls_in_flight: u64,
    pub(super) send_slots: u64,
    pub(super) source_bytes: u64,
    pub(super) sink_bytes: u64,
    pub(super) cancellations: Cancellations,
}

impl Report {
    fn of(server: &Server) -> Self {
        let connections = server.connections();
        let lanes = server.rdma().lanes();
        Self {
            connections: connections.len() as u64,
            calls_in_flight: connections.iter().map(|it| it.calls_in_flight as u64).sum(),
            send_slots: lanes.iter().map(|lane| lane.send_slots_in_use as u64).sum(),
            source_bytes: lanes.iter().map(|lane| lane.source_bytes_in_use).sum(),
            sink_bytes: lanes.iter().map(|lane| lane.sink_bytes_in_use).sum(),
            cancellations: Cancellations::of(&lanes),
        }
    }

    /// Returns true if only its connections are left.
    pub(super) fn is_idle(&self) -> bool {
        let Self { calls_in_flight, send_slots, source_bytes, sink_bytes, .. } = *self;
        (calls_in_flight, send_slots, source_bytes, sink_bytes) == (0, 0, 0, 0)
    }
}

/// Serves at `authority` and prints where; then answers `report`, goes in order at `shutdown`, and
/// goes at once when the standard input ends.
///
/// # Errors
///
/// Returns an error if it cannot listen there.
pub fn serve(runtime: &Handle, authority: &str) -> Result<(), RigError> {
    let (probe, _watch) = Probe::new();
    let builder = settings().server(Server::builder()).rdma(&rdma(authority));
    let builder = builder.drain_timeout(DRAIN_TIMEOUT);
    let server = builder.add_service(ProbeService::new(probe)).build();
    let address = format!("auto://{authority}");
    let listener = runtime.block_on(server.bind(&address)).map_err(Failure::from)?;
    println!("{}", listener.local_address().to_string().replacen("auto://", "", 1));
    let serving = Serving::start(runtime, listener);
    let farewell = answer_lines(|text| match text {
        REPORT => line(&Report::of(&server)),
        other => Err(misunderstood(other)),
    })?;
    serving.end(runtime, farewell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conductor::message::read;

    #[test]
    fn report_survives_its_line() {
        let report = Report {
            connections: 3,
            calls_in_flight: 1,
            send_slots: 0,
            source_bytes: 1 << 40,
            sink_bytes: 5,
            cancellations: Cancellations { withdrawn: 7, overdue: 1, ..Default::default() },
        };
        assert_eq!(read::<Report>("server", &line(&report).unwrap()).unwrap(), report);
        assert!(!report.is_idle());
        assert!(read::<Report>("server", "[1, 2]").is_err());
    }
}
