//! The result of a row: its verdict, figures with their bounds, and the output.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::counters::Counters;

/// The verdict on a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub(super) enum Verdict {
    /// All held.
    Passed,
    /// It worked, with a figure outside of its bound.
    Missed,
    /// Something did not work.
    Failed(String),
    /// It was not run.
    Skipped(String),
}

/// A measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    name: String,
    value: f64,
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<Bound>,
}

/// The bound on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Between(least, most) => (least..=most).contains(&value),
        }
    }
}

/// The result of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    figures: Vec<Figure>,
    /// Output of the row's commands, for people.
    printed: Vec<String>,
}

impl Outcome {
    /// A row that works so far.
    pub(super) fn new() -> Self {
        Self { verdict: Verdict::Passed, figures: Vec::new(), printed: Vec::new() }
    }

    /// A row that was not run.
    pub(super) fn skipped(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped(reason.into()), ..Self::new() }
    }

    /// A row that did not work.
    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failed(reason.into()), ..Self::new() }
    }

    /// Adds the output of a command.
    pub(super) fn print(&mut self, text: impl AsRef<str>) {
        self.printed.push(text.as_ref().trim_end().to_owned());
    }

    /// Adds the differences of both devices' counters.
    pub(super) fn print_counters(
        &mut self,
        what: &str,
        before: &[Counters; 2],
        after: &[Counters; 2],
    ) {
        let [a, b] = [0, 1].map(|side| after[side].since(&before[side]));
        self.print(format!("{what} by A's device: {a}; by B's: {b}"));
    }

    /// Adds a figure. One outside of its bound makes the row a miss.
    pub(super) fn measure(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &str,
        bound: Option<Bound>,
    ) {
        if bound.is_some_and(|bound| !bound.holds(value)) && self.verdict == Verdict::Passed {
            self.verdict = Verdict::Missed;
        }
        self.figures.push(Figure { name: name.into(), value, unit: unit.into(), bound });
    }

    /// Makes the row a failure unless it is one already.
    pub(super) fn fail(&mut self, reason: impl Into<String>) {
        if !matches!(self.verdict, Verdict::Failed(_)) {
            self.verdict = Verdict::Failed(reason.into());
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Passed => f.write_str("passed"),
            Verdict::Missed => f.write_str("MISSED"),
            Verdict::Failed(reason) => write!(f, "FAILED: {reason}"),
            Verdict::Skipped(reason) => write!(f, "skipped: {reason}"),
        }?;
        for Figure { name, value, unit, bound } in &self.figures {
            write!(f, "\n    {name} {value:.2} {unit}")?;
            match bound {
                Some(Bound::AtLeast(least)) => write!(f, " (at least {least})")?,
                Some(Bound::AtMost(most)) => write!(f, " (at most {most})")?,
                Some(Bound::Between(least, most)) => write!(f, " ({least} to {most})")?,
                None => {}
            }
        }
        Ok(())
    }
}

/// Returns the number that follows `label` in `text`.
pub(super) fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.split_once(label)?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

/// Returns the sum of the numbers that follow `label` in `text`.
pub(super) fn sum_after(text: &str, label: &str) -> f64 {
    let numbers = text.match_indices(label).filter_map(|(at, _)| number_after(&text[at..], label));
    numbers.fold(0.0, |sum, number| sum + number)
}

/// Returns the word that follows `label` in `text`.
pub(super) fn word_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let rest = text.split_once(label)?.1;
    rest.split(|c: char| !c.is_ascii_alphanumeric()).next().filter(|word| !word.is_empty())
}

/// Returns the numbers of the last line that has nothing else: the result of a tool of perftest.
pub(super) fn last_numbers(text: &str) -> Option<Vec<f64>> {
    let numbers = |line: &str| {
        let numbers: Vec<f64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        (!numbers.is_empty()).then_some(numbers)
    };
    text.lines().rev().find_map(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_outside_of_its_bound_is_a_miss() {
        let mut outcome = Outcome::new();
        outcome.measure("ratio", 1.2, "", Some(Bound::AtMost(1.25)));
        assert_eq!(outcome.verdict, Verdict::Passed);
        outcome.measure("ratio", 1.0, "", Some(Bound::Between(0.9, 1.1)));
        assert_eq!(outcome.verdict, Verdict::Passed);
        outcome.measure("ratio", 0.9, "", Some(Bound::AtLeast(0.95)));
        assert_eq!(outcome.verdict, Verdict::Missed);
        outcome.fail("gone");
        outcome.measure("ratio", 0.9, "", Some(Bound::AtLeast(0.95)));
        assert_eq!(outcome.verdict, Verdict::Failed("gone".into()));
    }

    #[test]
    fn numbers_are_found_in_what_tools_print() {
        let line = "rdma Echo 64 B, 1 in flight: 100 calls, p50 7.6 us, p99 9.9 us, 8 calls/s";
        assert_eq!(number_after(line, "p50 "), Some(7.6));
        assert_eq!(number_after(line, "p75 "), None);
        assert_eq!(number_after("1 in flight: 7.", "flight: "), Some(7.0));
        let state = "lane rxe0#0: keys region, missing 2 of 8; lane rxe0#1: missing 1 of 8";
        assert_eq!((sum_after(state, "missing "), sum_after(state, "lost ")), (3.0, 0.0));
        assert_eq!((word_after(state, "keys "), word_after(state, "mtu ")), (Some("region"), None));
        let table = "---\n #bytes #iterations\n 64  1000  1.5  3.25\n----\n";
        assert_eq!(last_numbers(table), Some(vec![64.0, 1000.0, 1.5, 3.25]));
        assert_eq!(last_numbers("no table"), None);
    }
}
