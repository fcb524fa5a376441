//! A table of the steps' results.

use std::fmt;
use std::time::Duration;

use farcall_testkit::table::Columns;

use super::cost::Cost;
use super::step::CheckStep;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepOutcome {
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
    /// A row without a step stands for those that ran beside the others.
    rows: Vec<(Option<CheckStep>, Cost, StepOutcome)>,
}

/// Maximum growth of a step over its recorded time before it is named.
const GROWTH_MAX: f64 = 2.0;

impl Summary {
    /// Adds a step that has ended.
    pub(super) fn add(&mut self, step: CheckStep, took: Cost, outcome: StepOutcome) {
        self.rows.push((Some(step), took, outcome));
    }

    /// Adds the steps that ran beside the others: the time that was spent waiting for them, and
    /// their processor time.
    pub(super) fn add_beside(&mut self, took: Cost, outcome: StepOutcome) {
        self.rows.push((None, took, outcome));
    }

    /// Returns the number of failed steps.
    pub(super) fn failed_count(&self) -> usize {
        self.rows.iter().filter(|(_, _, outcome)| matches!(outcome, StepOutcome::Failed(_))).count()
    }

    fn total(&self) -> Cost {
        let mut total = Cost::default();
        for (_, cost, _) in &self.rows {
            total += *cost;
        }
        total
    }

    /// Returns each step's time as a multiple of its record, for steps that ran and have one.
    fn growths(&self) -> Vec<(CheckStep, f64)> {
        let ran =
            self.rows.iter().filter(|(_, _, outcome)| !matches!(outcome, StepOutcome::Skipped(_)));
        ran.filter_map(|(step, cost, _)| {
            let step = (*step)?;
            let record = step.record()?.as_secs_f64();
            Some((step, cost.cpu.as_secs_f64() / record))
        })
        .collect()
    }

    /// The steps that took over twice their records, measured by how slow this machine is: by the
    /// median of all steps, where that is more than their records.
    fn grown(&self) -> Vec<(CheckStep, f64)> {
        let mut growths = self.growths();
        let mut sorted: Vec<f64> = growths.iter().map(|(_, growth)| *growth).collect();
        sorted.sort_by(f64::total_cmp);
        let slowness = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0).max(1.0);
        growths.retain(|(_, growth)| *growth > GROWTH_MAX * slowness);
        growths
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns =
            Columns::new().left("step", 14).right("seconds", 8).right("cpu", 8).left("result", 0);
        let line = |name: String, cost: Cost, result: String| {
            let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
            columns.line([name, seconds(cost.wall), seconds(cost.cpu), result])
        };
        writeln!(f, "{}", columns.heading())?;
        for (step, cost, outcome) in &self.rows {
            let name = step.map_or("beside".to_owned(), |step| step.to_string());
            let outcome = outcome.to_string();
            let outcome = outcome.lines().next().unwrap_or_default().to_owned();
            writeln!(f, "{}", line(name, *cost, outcome))?;
        }
        let total = self.total();
        let minutes = format!("{:.0} minutes", total.wall.as_secs_f64() / 60.0);
        writeln!(f, "{}", line("sum".to_owned(), total, minutes))?;
        for (step, growth) in self.grown() {
            writeln!(f, "{step} took {growth:.1} times the processor time of its record")?;
        }
        // Last, where a reader of a long log looks first.
        for (_, _, outcome) in &self.rows {
            if let StepOutcome::Failed(reason) = outcome
                && let Some((failed, printed)) = reason.split_once('\n')
            {
                writeln!(f, "\n=== {failed}\n{printed}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for StepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(None) => write!(f, "ok"),
            Self::Passed(Some(remark)) => write!(f, "ok ({remark})"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(wall: Duration, cpu: Duration) -> Cost {
        Cost { wall, cpu }
    }

    #[test]
    fn the_table_shows_every_kind_of_outcome() {
        let mut summary = Summary::default();
        let seconds = Duration::from_secs;
        summary.add(
            CheckStep::Fmt,
            cost(Duration::from_millis(1250), seconds(1)),
            StepOutcome::Passed(None),
        );
        summary.add(CheckStep::Deny, Cost::default(), StepOutcome::Passed(Some("remark".into())));
        summary.add(CheckStep::VmSuite, Cost::default(), StepOutcome::Skipped("nothing".into()));
        summary.add(
            CheckStep::Unit,
            cost(seconds(100), seconds(130)),
            StepOutcome::Failed("it hung".into()),
        );
        summary.add_beside(cost(seconds(5), seconds(90)), StepOutcome::Passed(None));
        let table = "step            seconds      cpu  result\n\
                     fmt                 1.2      1.0  ok\n\
                     deny                0.0      0.0  ok (remark)\n\
                     vm-suite            0.0      0.0  skipped: nothing\n\
                     unit              100.0    130.0  FAILED: it hung\n\
                     beside              5.0     90.0  ok\n\
                     sum               106.2    221.0  2 minutes\n";
        assert_eq!(summary.to_string(), table);
        assert_eq!(summary.failed_count(), 1);
    }

    #[test]
    fn a_failure_of_several_lines_is_shown_below_the_table() {
        let mut summary = Summary::default();
        let reason = "failed: first\npanicked\n=== first: FAILED";
        summary.add(CheckStep::Unit, Cost::default(), StepOutcome::Failed(reason.into()));
        let text = summary.to_string();
        assert!(text.contains("  FAILED: failed: first\nsum "), "{text}");
        assert!(text.ends_with("\n\n=== failed: first\npanicked\n=== first: FAILED\n"), "{text}");
    }

    /// A summary of steps that took so many times their records.
    fn summary_of(growths: &[(CheckStep, f64)]) -> Summary {
        let mut summary = Summary::default();
        for &(step, growth) in growths {
            let cpu = step.record().unwrap().mul_f64(growth);
            summary.add(step, cost(cpu, cpu), StepOutcome::Passed(None));
        }
        summary
    }

    #[test]
    fn a_step_that_doubled_is_named() {
        let summary = summary_of(&[
            (CheckStep::Clippy, 1.1),
            (CheckStep::Doc, 0.9),
            (CheckStep::Unit, 2.5),
            (CheckStep::Sim, 1.0),
        ]);
        let named = "unit took 2.5 times the processor time of its record\n";
        assert!(summary.to_string().ends_with(named), "{summary}");
    }

    #[test]
    fn a_slow_machine_names_none_and_a_warm_build_hides_none() {
        let slow =
            summary_of(&[(CheckStep::Clippy, 3.0), (CheckStep::Doc, 3.2), (CheckStep::Unit, 3.4)]);
        assert!(slow.grown().is_empty());
        let warm =
            summary_of(&[(CheckStep::Clippy, 0.1), (CheckStep::Doc, 0.1), (CheckStep::Unit, 1.2)]);
        assert!(warm.grown().is_empty());
        let warm =
            summary_of(&[(CheckStep::Clippy, 0.1), (CheckStep::Doc, 0.1), (CheckStep::Unit, 2.2)]);
        assert_eq!(warm.grown().len(), 1);
    }
}
