//! Building the programs of the suite, running them, and collecting what they wrote down.

use std::path::Path;

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::report::Report;
use super::table::{Column, Table};
use super::transport::Transport;
use crate::batch::{self, Job};
use crate::interrupt;
use crate::kernel::Series;
use crate::rdma_place::RdmaPlace;
use crate::setup::{self, Purpose};

/// The variable by which a program of the suite knows where to write its report.
const REPORT_VARIABLE: &str = "FARCALL_SUITE_REPORT";

/// Shows all behaviours over `transports` and prints the table.
///
/// # Errors
///
/// Returns an error if the set-up or a build fails, or if anything was not shown.
pub(crate) fn run(transports: &[Transport], kernel: Series) -> Result<()> {
    let place = RdmaPlace::find(kernel);
    let mut purposes = vec![Purpose::Build];
    if transports.contains(&Transport::Rdma) {
        place.announce();
        purposes.extend(place.purposes());
    }
    setup::ensure(&purposes)?;
    let mut table = Table::default();
    let mut jobs = Vec::new();
    for &transport in transports {
        jobs.push((transport, transport.program().build(&place.addresses())?));
    }
    for (transport, jobs) in jobs {
        table.add(column(transport, jobs, &place)?);
        if interrupt::requested() {
            bail!("interrupted");
        }
    }
    println!("\n{table}");
    if table.is_green() { Ok(()) } else { bail!("some behaviors were not shown") }
}

/// Runs the program of a transport.
fn column(transport: Transport, mut jobs: Vec<Job>, place: &RdmaPlace) -> Result<Column> {
    const FILE: &str = "report.jsonl";
    let folder = TempDir::with_prefix("farcall-suite-")?;
    let is_rdma = transport == Transport::Rdma;
    let seen = if is_rdma { place.share_as_seen(folder.path()) } else { folder.path().to_owned() };
    for job in &mut jobs {
        let file = seen.join(FILE).display().to_string();
        job.variables.push((REPORT_VARIABLE.to_owned(), file));
    }
    let ended = if is_rdma { place.run_sharing(&jobs, folder.path()) } else { batch::run(&jobs) };
    let (report, unread) = read(&folder.path().join(FILE));
    let failure = ended.err().map(|error| format!("{error:#}")).or(unread);
    Ok(Column { transport, report, failure })
}

/// The report, or why there is none: the other columns are shown all the same.
fn read(file: &Path) -> (Report, Option<String>) {
    match Report::read(file) {
        Ok(report) => (report, None),
        Err(error) => (Report::default(), Some(format!("{error:#}"))),
    }
}
