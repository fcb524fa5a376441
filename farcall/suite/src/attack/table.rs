//! The rows as text: a line each as soon as it is there, with what did not hold below it.

use std::fmt;
use std::time::Duration;

use super::judge::Observed;
use super::message::Deeds;

/// The line above all others.
pub(super) struct Heading;

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<22} {:<6} {:>6} {:>7} {:>5} {:>15} {:>20} \
             {:>9} {:>11} {:>7} {:>8} {:>8} {:>6} {:>5}",
            "row",
            "",
            "calls",
            "errors",
            "new",
            "p99 ms",
            "memory MiB",
            "sent KiB",
            "closed",
            "ns/byte",
            "attempts",
            "in fl.",
            "log",
            "s"
        )
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
        write!(
            f,
            "{name:<22} {:<6} {:>6} {:>7} {:>5} {:>15} {:>20} \
             {:>9} {:>11} {:>7} {:>8} {:>8} {:>6} {:>5.1}",
            if complaints.is_empty() { "ok" } else { "FAILED" },
            during.calls,
            format!("{errors}+{new_errors}"),
            during.newcomers,
            format!("{} > {}", millis(before.p99_us), millis(during.p99_us)),
            format!("{} > {} > {}", memory.before >> 10, memory.peak >> 10, memory.after >> 10),
            sent >> 10,
            format!("{closed}/{opened}"),
            dash(observed.cpu_ns_per_byte()),
            dash(observed.attempts),
            standing.calls_in_flight,
            log.lines,
            took.as_secs_f64(),
        )?;
        for complaint in *complaints {
            write!(f, "\n    {complaint}")?;
        }
        Ok(())
    }
}

/// What the columns mean.
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
    fn columns_stand_below_their_names_and_complaints_below_their_row() {
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
