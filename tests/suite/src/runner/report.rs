//! The result of each behaviour for a program to read: a JSON value a line, in the file that
//! `FARCALL_SUITE_REPORT` names. `cargo xtask suite` makes its table from it.
//!
//! All planned behaviours are written before the first one runs, so that an aborted run cannot pass
//! for a complete one.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde_json::json;

/// The variable that names the file.
const VARIABLE: &str = "FARCALL_SUITE_REPORT";

/// The result of a behaviour.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BehaviourOutcome {
    /// It is going to be tried.
    Planned,
    /// It was shown; perhaps as the difference of that name.
    Passed(Option<&'static str>),
    /// It was not shown.
    Failed,
    /// It cannot be shown here, and why.
    Absent(&'static str),
}

/// The file.
#[derive(Debug)]
pub(crate) struct Report {
    file: Mutex<File>,
}

impl Report {
    /// The report that the environment asks for.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be made.
    pub(crate) fn from_environment() -> io::Result<Option<Self>> {
        std::env::var_os(VARIABLE).map(|path| Self::create(Path::new(&path))).transpose()
    }

    fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(File::create(path)?) })
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub(crate) fn add(
        &self,
        column: &str,
        behaviour: &str,
        outcome: BehaviourOutcome,
    ) -> io::Result<()> {
        let (outcome, note) = match outcome {
            BehaviourOutcome::Planned => ("planned", None),
            BehaviourOutcome::Passed(difference) => ("passed", difference),
            BehaviourOutcome::Failed => ("failed", None),
            BehaviourOutcome::Absent(reason) => ("absent", Some(reason)),
        };
        let line =
            json!({ "column": column, "behaviour": behaviour, "outcome": outcome, "note": note });
        let mut file = self.file.lock();
        file.write_all(format!("{line}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_json() {
        let path = std::env::temp_dir().join(format!("farcall-report-{}", std::process::id()));
        let report = Report::create(&path).unwrap();
        report.add("tcp", "a", BehaviourOutcome::Planned).unwrap();
        report.add("tcp", "a", BehaviourOutcome::Passed(Some("other"))).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let values: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(values[0]["outcome"], "planned");
        assert_eq!(values[1]["note"], "other");
    }
}
