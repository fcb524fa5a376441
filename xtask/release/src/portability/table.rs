//! The results of all trials as a table, and the first output that each user saw.

use std::fmt;

use farcall_testkit::table::Columns;

use super::trial::{Installed, Report, Verdict};

/// The reports of all trials.
#[derive(Debug, Default)]
pub(super) struct Table {
    reports: Vec<Report>,
}

impl Table {
    pub(super) fn add(&mut self, report: Report) {
        self.reports.push(report);
    }

    pub(super) fn count(&self) -> usize {
        self.reports.len()
    }

    pub(super) fn failed_count(&self) -> usize {
        self.reports.iter().filter(|report| report.verdict != Verdict::Passed).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.reports.iter().map(|report| report.line.len()).max().unwrap_or_default();
        let columns = Columns::new()
            .left("suite", 9)
            .left("user", 5)
            .left("command", widest)
            .right("seconds", 8)
            .left("verdict", 0);
        writeln!(f, "{}", columns.heading())?;
        for report in &self.reports {
            let Report { suite, user, line, verdict, .. } = report;
            let seconds = format!("{:.1}", report.took.as_secs_f64());
            let cells: [&dyn fmt::Display; 5] = [suite, user, line, &seconds, verdict];
            writeln!(f, "{}", columns.line(cells))?;
        }
        let seen = |report: &&Report| !matches!(report.verdict, Verdict::Unknown(_));
        for report in self.reports.iter().filter(seen) {
            let Report { suite, user, line, installed, .. } = report;
            writeln!(f, "\n--- {suite} as {user}: {line}")?;
            writeln!(f, "installed: {installed}")?;
            writeln!(f, "the first lines:")?;
            write_lines(f, &report.first_lines)?;
            if !report.last_lines.is_empty() {
                writeln!(f, "the last lines:")?;
                write_lines(f, &report.last_lines)?;
            }
        }
        Ok(())
    }
}

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    lines.iter().try_for_each(|line| writeln!(f, "    {line}"))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("ok"),
            Self::Failed(status) => write!(f, "FAILED: {status}"),
            Self::Hung => f.write_str("HUNG, killed at its bound"),
            Self::Unknown(reason) => write!(f, "NO VERDICT: {reason}"),
        }
    }
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all == 0 {
            return f.write_str("nothing");
        }
        write!(f, "{} packages, asked for: {}", self.all, self.by_name.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::options::{Suite, User};
    use super::*;

    fn report(suite: Suite, verdict: Verdict) -> Report {
        Report {
            suite,
            user: User::Root,
            line: "cargo xtask demo".into(),
            verdict,
            took: Duration::from_millis(1250),
            installed: Installed { all: 3, by_name: vec!["cpio".into()] },
            first_lines: vec!["hello".into()],
            last_lines: Vec::new(),
        }
    }

    #[test]
    fn verdicts_come_first_and_then_what_users_saw() {
        let mut table = Table::default();
        table.add(report(Suite::Trixie, Verdict::Passed));
        let shown = "suite     user  command           seconds  verdict\n\
                     trixie    root  cargo xtask demo      1.2  ok\n\
                     \n\
                     --- trixie as root: cargo xtask demo\n\
                     installed: 3 packages, asked for: cpio\n\
                     the first lines:\n    hello\n";
        assert_eq!(table.to_string(), shown);
        assert_eq!((table.count(), table.failed_count()), (1, 0));
    }

    #[test]
    fn whatever_is_no_success_is_a_failure() {
        let mut table = Table::default();
        table.add(report(Suite::Sid, Verdict::Hung));
        table.add(report(Suite::Sid, Verdict::Unknown("no archive".into())));
        assert_eq!(table.failed_count(), 2);
        let shown = table.to_string();
        assert!(shown.contains("NO VERDICT: no archive"));
        assert_eq!(shown.matches("the first lines:").count(), 1);
    }
}
