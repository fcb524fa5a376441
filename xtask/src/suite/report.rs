//! Reading what a program of the suite wrote down: a JSON value a line.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The result of a behaviour over one transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// It was to be shown, and nothing was heard of it.
    Missing,
    /// It was shown; perhaps as a difference of that name.
    Passed(Option<String>),
    /// It was not shown.
    Failed,
    /// It cannot be shown there, and why.
    Absent(String),
}

/// The behaviours of one report, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) cells: Vec<(String, Cell)>,
}

#[derive(Deserialize)]
struct Line {
    behaviour: String,
    outcome: String,
    note: Option<String>,
}

impl Report {
    /// Reads the report that lies in `file`. A program that crashed before it wrote one has shown
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if it is there and cannot be read, or is not understood.
    pub(super) fn read(file: &Path) -> Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut report = Self::default();
        for line in text.lines() {
            let parsed = serde_json::from_str(line);
            let Line { behaviour, outcome, note } =
                parsed.with_context(|| format!("cannot parse a line: {line}"))?;
            let cell = match (outcome.as_str(), note) {
                ("planned", _) => Cell::Missing,
                ("passed", difference) => Cell::Passed(difference),
                ("failed", _) => Cell::Failed,
                ("absent", Some(reason)) => Cell::Absent(reason),
                _ => bail!("cannot parse an outcome: {line}"),
            };
            report.put(behaviour, cell);
        }
        Ok(report)
    }

    fn put(&mut self, behaviour: String, cell: Cell) {
        match self.cells.iter_mut().find(|(name, _)| *name == behaviour) {
            Some((_, known)) => *known = cell,
            None => self.cells.push((behaviour, cell)),
        }
    }

    /// Returns the result of `behaviour`.
    pub(super) fn cell(&self, behaviour: &str) -> Cell {
        let found = self.cells.iter().find(|(name, _)| name == behaviour);
        found.map_or(Cell::Missing, |(_, cell)| cell.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_planned_and_not_reported_is_missing() {
        let text = "{\"behaviour\":\"a\",\"outcome\":\"planned\",\"note\":null}\n\
                    {\"behaviour\":\"b\",\"outcome\":\"planned\"}\n\
                    {\"behaviour\":\"c\",\"outcome\":\"absent\",\"note\":\"why\"}\n\
                    {\"behaviour\":\"b\",\"outcome\":\"passed\",\"note\":\"other\"}\n";
        let report = Report::parse(text).unwrap();
        assert_eq!(report.cell("a"), Cell::Missing);
        assert_eq!(report.cell("b"), Cell::Passed(Some("other".into())));
        assert_eq!(report.cell("c"), Cell::Absent("why".into()));
        assert_eq!(report.cell("unheard"), Cell::Missing);
    }

    #[test]
    fn half_a_line_is_an_error() {
        assert!(Report::parse("{\"behaviour\":\"a\",\"outc").is_err());
        assert!(Report::parse("{\"behaviour\":\"a\",\"outcome\":\"maybe\"}").is_err());
        assert_eq!(Report::read(Path::new("/nowhere/at/all")).unwrap(), Report::default());
    }
}
