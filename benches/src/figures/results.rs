//! The file of results: figures by their number, as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::figure::Figure;
use super::goals::GOALS;

/// Figures by their number: `{"T2": {"value": .., "unit": .., "rounds": [..], ..}, ..}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Results {
    figures: BTreeMap<String, Figure>,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read, or is not what [`write`](Self::write) writes.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} holds no figures of this harness", file.display()))
    }

    /// Writes a file, in place of what may be there.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Puts in a figure, in place of an older one with its number.
    pub fn put(&mut self, number: &str, figure: Figure) {
        self.figures.insert(number.to_owned(), figure);
    }

    /// Puts in all figures of `others`, in place of older ones.
    pub fn merge(&mut self, others: Self) {
        self.figures.extend(others.figures);
    }

    /// The figure with this number.
    #[must_use]
    pub fn figure(&self, number: &str) -> Option<&Figure> {
        self.figures.get(number)
    }

    /// The figures that are there, in the order of the goals.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Figure)> {
        GOALS.iter().filter_map(|goal| Some((goal.number, self.figures.get(goal.number)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Part, Sides, goal};

    fn figure(number: &str, value: f64) -> Figure {
        let goal = goal(number).unwrap();
        let part = |part| Part::new(part, vec![value], Sides::new()).unwrap();
        Figure::new(goal, goal.parts.iter().map(part).collect(), "abc", "a machine").unwrap()
    }

    #[test]
    fn the_file_has_value_unit_and_rounds_by_number() {
        let mut results = Results::default();
        results.put("T2", figure("T2", 0.5));
        let value: serde_json::Value = serde_json::to_value(&results).unwrap();
        let t2 = &value["T2"];
        assert_eq!(t2["value"], 0.5);
        assert_eq!(t2["unit"], "ratio to tonic");
        assert_eq!(t2["rounds"], serde_json::json!([0.5]));
        assert_eq!(t2["standing"], "short_of_ship");
        assert_eq!(t2["commit"], "abc");
        assert_eq!(t2["parts"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        let mut results = Results::default();
        results.put("T3", figure("T3", 3.0));
        results.put("R10", figure("R10", 0.1));
        results.put("R2", figure("R2", 2.0));
        results.write(&file).unwrap();
        let read = Results::read(&file).unwrap();
        assert_eq!(read, results);
        assert_eq!(read.iter().map(|(number, _)| number).collect::<Vec<_>>(), ["T3", "R2", "R10"]);
    }

    #[test]
    fn newer_figures_take_the_place_of_older_ones() {
        let mut old = Results::default();
        old.put("T1", figure("T1", 1.0));
        old.put("T2", figure("T2", 1.0));
        let mut new = Results::default();
        new.put("T2", figure("T2", 0.1));
        old.merge(new);
        let values: Vec<f64> = old.iter().map(|(_, figure)| figure.worst.value).collect();
        assert_eq!(values, [1.0, 0.1]);
    }

    #[test]
    fn a_file_of_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.json");
        std::fs::write(&file, "[]").unwrap();
        let error = Results::read(&file).unwrap_err();
        assert!(error.to_string().contains("other.json"));
    }
}
