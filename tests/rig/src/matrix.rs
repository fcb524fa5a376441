//! Rows that are shown one after the other, and the verdict on all.

use std::fmt;
use std::time::{Duration, Instant};

use crate::RigError;
use crate::conductor::watchdog::Watchdog;

/// The rows to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Their names. All when there are none, or all that the short form has.
    pub rows: Vec<String>,
    /// Set for the short form.
    pub is_quick: bool,
}

impl Selection {
    /// Returns true if a row is to be shown. A name chooses any row.
    pub(crate) fn has(&self, name: &str, is_in_quick: bool) -> bool {
        match self.rows.is_empty() {
            true => is_in_quick || !self.is_quick,
            false => self.rows.iter().any(|chosen| chosen == name),
        }
    }

    /// Checks the names against those that there are.
    pub(crate) fn check(&self, known: impl Fn(&str) -> bool) -> Result<(), RigError> {
        let unknown = self.rows.iter().find(|name| !known(name));
        unknown.map_or(Ok(()), |name| Err(RigError::NoSuchRow(name.clone())))
    }
}

/// The verdict on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its rules held.
    Held,
    /// Otherwise, in so many ways.
    Broken(usize),
    /// It cannot be shown here.
    Impossible,
}

impl Verdict {
    /// The verdict on a row with these complaints.
    pub(crate) fn on(complaints: &[String]) -> Self {
        match complaints.len() {
            0 => Self::Held,
            count => Self::Broken(count),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("ok"),
            Self::Broken(count) => write!(f, "FAILED ({count})"),
            Self::Impossible => f.write_str("cannot be shown here; not counted"),
        }
    }
}

/// The rows that have been shown. What hangs is named and ends the program.
#[derive(Debug)]
pub(crate) struct Matrix {
    watchdog: Watchdog,
    rows: Vec<(String, Duration, Verdict)>,
}

impl Matrix {
    pub(crate) fn start() -> Self {
        Self { watchdog: Watchdog::start(), rows: Vec::new() }
    }

    /// Shows a row, whose steps `show` announces to the watchdog.
    pub(crate) fn add(&mut self, name: &str, show: impl FnOnce(&Watchdog) -> Verdict) -> Verdict {
        self.watchdog.enter_row(name);
        let started = Instant::now();
        let verdict = show(&self.watchdog);
        self.rows.push((name.to_owned(), started.elapsed(), verdict));
        verdict
    }

    /// Returns true if every row that can be shown has held, and there was one.
    pub(crate) fn holds(&self) -> bool {
        self.count(|it| it == Verdict::Held) > 0 && self.count(is_broken) == 0
    }

    fn count(&self, is_wanted: fn(Verdict) -> bool) -> usize {
        self.rows.iter().filter(|(_, _, verdict)| is_wanted(*verdict)).count()
    }
}

fn is_broken(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Broken(_))
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, took, verdict) in &self.rows {
            writeln!(f, "{name:<22} {:>6.1} s  {verdict}", took.as_secs_f64())?;
        }
        let held = self.count(|it| it == Verdict::Held);
        let impossible = self.count(|it| it == Verdict::Impossible);
        let broken = self.count(is_broken);
        writeln!(f, "{held} held, {broken} failed, {impossible} cannot be shown here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_broken_row_is_enough_and_none_is_too_few() {
        let mut matrix = Matrix::start();
        assert!(!matrix.holds());
        matrix.add("impossible", |_| Verdict::Impossible);
        assert!(!matrix.holds());
        matrix.add("held", |_| Verdict::Held);
        assert!(matrix.holds());
        matrix.add("broken", |_| Verdict::on(&["one".to_owned(), "two".to_owned()]));
        assert!(!matrix.holds());
        assert!(matrix.to_string().ends_with("1 held, 1 failed, 1 cannot be shown here\n"));
    }

    #[test]
    fn name_chooses_any_row() {
        let selection = |rows: &[&str], is_quick| Selection {
            rows: rows.iter().map(ToString::to_string).collect(),
            is_quick,
        };
        let shown = |chosen: &Selection| {
            [("short", true), ("long", false)].map(|(name, is_short)| chosen.has(name, is_short))
        };
        assert_eq!(shown(&selection(&[], false)), [true, true]);
        assert_eq!(shown(&selection(&[], true)), [true, false]);
        assert_eq!(shown(&selection(&["long"], true)), [false, true]);
        let known = |name: &str| ["short", "long"].contains(&name);
        selection(&["long", "short"], true).check(known).unwrap();
        let error = selection(&["no-such"], true).check(known).unwrap_err();
        assert!(error.to_string().contains("no-such"), "{error}");
    }
}
