//! The rows as text: a line each as soon as it is there, with what did not hold below it.

use std::fmt;
use std::time::Duration;

use farcall_testkit::table::Columns;

use super::judge::Observed;
use super::message::Deeds;

fn columns() -> Columns {
    Columns::new()
        .left("row", 22)
        .left("", 6)
        .right("calls", 6)
        .right("errors", 7)
        .right("new", 5)
        .right("p99 ms", 15)
        .right("memory MiB", 20)
        .right("sent KiB", 9)
        .right("closed", 11)
        .right("ns/byte", 7)
        .right("attempts", 8)
        .right("in fl.", 8)
        .right("log", 6)
        .right("s", 5)
}

/// The line above all others.
pub(super) struct Heading;

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&columns().heading())
    }
}

/// A row's line.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) observed: &'a Observed,
    pub(super) complaints: &'a [String],
    pub(super) took: Duration,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, observed, complaints, took } = self;
        let Observed { before, during, after, memory, standing, log, .. } = observed;
        let Deeds { opened, closed, sent, .. } = observed.deeds;
        let errors = during.errors + after.errors;
        let new_errors = during.newcomer_errors + after.newcomer_errors;
        let millis = |us: u64| format!("{}.{}", us / 1000, us % 1000 / 100);
        let dash = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        let verdict = if complaints.is_empty() { "ok" } else { "FAILED" };
        let cells = [
            (*name).to_owned(),
            verdict.to_owned(),
            during.calls.to_string(),
            format!("{errors}+{new_errors}"),
            during.newcomers.to_string(),
            format!("{} > {}", millis(before.p99_us), millis(during.p99_us)),
            format!("{} > {} > {}", memory.before >> 10, memory.peak >> 10, memory.after >> 10),
            (sent >> 10).to_string(),
            format!("{closed}/{opened}"),
            dash(observed.cpu_ns_per_byte()),
            dash(observed.attempts),
            standing.calls_in_flight.to_string(),
            log.lines.to_string(),
            format!("{:.1}", took.as_secs_f64()),
        ];
        f.write_str(&columns().line(cells))?;
        for complaint in *complaints {
            write!(f, "\n    {complaint}")?;
        }
        Ok(())
    }
}

/// Legend of the columns.
pub(super) const LEGEND: &str = "\
calls: honest calls answered during the attack; errors: of those and of newcomers, after it too;
new: new honest connections; p99: without the attack > with it; memory: the victim's, before >
peak > after; closed: hostile connections that the victim closed, of all; ns/byte: the victim's
processor time for a hostile byte; attempts: the victim's connections to its hostile server;
in fl.: the server's calls in flight at the attack's end; log: lines that the victim logged";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_complaints_follow_their_row() {
        let observed = Observed::default();
        let complaints = ["it grew".to_owned()];
        let line = Line {
            name: "a-row",
            observed: &observed,
            complaints: &complaints,
            took: Duration::ZERO,
        };
        let text = line.to_string();
        let (line, below) = text.split_once('\n').unwrap();
        assert_eq!(line.len(), Heading.to_string().len());
        assert!(line.contains("FAILED") && below.trim() == "it grew", "{text}");
    }
}
