//! The server's role: a process that serves until it is told otherwise, or killed.

use std::io::BufRead as _;
use std::time::Duration;

use farcall::Server;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::FaultError;
use super::cancellations::Cancellations;
use super::config::{rdma, settings};
use crate::conductor::process::SHUTDOWN;
use farcall_suite::proto::probe_rpc::ProbeService;
use farcall_suite::{Failure, Probe};

/// Drain timeout of a server that is told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A server's report about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    fn to_line(self) -> String {
        let Self { connections, calls_in_flight, send_slots, source_bytes, sink_bytes, .. } = self;
        let own = [connections, calls_in_flight, send_slots, source_bytes, sink_bytes];
        json!([own, self.cancellations.to_counts()]).to_string()
    }

    /// Reads what [`Report::to_line`] wrote.
    pub(super) fn from_line(line: &str) -> Result<Self, FaultError> {
        let text = |_| FaultError::Unexpected { role: "server", line: line.to_owned() };
        let (own, cancellations): ([u64; 5], [u64; 6]) =
            serde_json::from_str(line).map_err(text)?;
        let [connections, calls_in_flight, send_slots, source_bytes, sink_bytes] = own;
        let cancellations = Cancellations::from_counts(cancellations);
        Ok(Self {
            connections,
            calls_in_flight,
            send_slots,
            source_bytes,
            sink_bytes,
            cancellations,
        })
    }
}

/// Serves at `authority` and prints where; then answers `report`, goes in order at `shutdown`, and
/// goes at once when the standard input ends.
///
/// # Errors
///
/// When it cannot listen there.
pub fn serve(runtime: &Handle, authority: &str) -> Result<(), FaultError> {
    let (probe, _watch) = Probe::new();
    let builder = settings().server(Server::builder()).rdma(&rdma(authority));
    let builder = builder.drain_timeout(DRAIN_TIMEOUT);
    let server = builder.add_service(ProbeService::new(probe)).build();
    let (shutdown, told) = oneshot::channel::<()>();
    let address = format!("auto://{authority}");
    let listener = runtime.block_on(server.bind(&address)).map_err(Failure::from)?;
    println!("{}", listener.local_address().to_string().replacen("auto://", "", 1));
    let serving = listener.serve().with_graceful_shutdown(async { drop(told.await) });
    let serving = runtime.spawn(serving);
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "report" => println!("{}", Report::of(&server).to_line()),
            SHUTDOWN => {
                drop(shutdown);
                let served = runtime.block_on(serving);
                return Ok(served.map_err(Failure::from)?.map_err(Failure::from)?);
            }
            other => {
                return Err(FaultError::Unexpected { role: "conductor", line: other.to_owned() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_through_its_line() {
        let report = Report {
            connections: 3,
            calls_in_flight: 1,
            send_slots: 0,
            source_bytes: 1 << 40,
            sink_bytes: 5,
            cancellations: Cancellations { withdrawn: 7, overdue: 1, ..Default::default() },
        };
        assert_eq!(Report::from_line(&report.to_line()).unwrap(), report);
        assert!(!report.is_idle());
        assert!(Report::from_line("[1, 2]").is_err());
        assert!(Report::from_line("hello").is_err());
    }
}
