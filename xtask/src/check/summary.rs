//! How the steps went, as a table.

use std::fmt;
use std::time::Duration;

use super::step::Step;

/// How a step went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It passed, perhaps with a remark.
    Passed(Option<String>),
    /// There was nothing to do, and why.
    Skipped(String),
    /// It failed, and how.
    Failed(String),
}

/// All steps that were run.
#[derive(Debug, Default)]
pub(super) struct Summary {
    rows: Vec<(Step, Duration, Outcome)>,
}

impl Summary {
    /// Adds a step that has ended.
    pub(super) fn add(&mut self, step: Step, took: Duration, outcome: Outcome) {
        self.rows.push((step, took, outcome));
    }

    /// How many have failed.
    pub(super) fn failed_count(&self) -> usize {
        self.rows.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_))).count()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:>8}  result", "step", "seconds")?;
        for (step, took, outcome) in &self.rows {
            let seconds = took.as_secs_f64();
            write!(f, "{step:<10} {seconds:>8.1}  ")?;
            match outcome {
                Outcome::Passed(None) => writeln!(f, "ok")?,
                Outcome::Passed(Some(remark)) => writeln!(f, "ok ({remark})")?,
                Outcome::Skipped(reason) => writeln!(f, "skipped: {reason}")?,
                Outcome::Failed(reason) => writeln!(f, "FAILED: {reason}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_every_kind_of_outcome() {
        let mut summary = Summary::default();
        summary.add(Step::Fmt, Duration::from_millis(1250), Outcome::Passed(None));
        summary.add(Step::Deny, Duration::ZERO, Outcome::Passed(Some("remark".into())));
        summary.add(Step::VmSuite, Duration::ZERO, Outcome::Skipped("nothing".into()));
        summary.add(Step::Unit, Duration::from_secs(100), Outcome::Failed("it hung".into()));
        let table = "step        seconds  result\n\
                     fmt             1.2  ok\n\
                     deny            0.0  ok (remark)\n\
                     vm-suite        0.0  skipped: nothing\n\
                     unit          100.0  FAILED: it hung\n";
        assert_eq!(summary.to_string(), table);
        assert_eq!(summary.failed_count(), 1);
    }
}
