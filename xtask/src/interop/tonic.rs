//! tonic's cases: the suite's test `grpc`, whose report has a line for each behaviour and column.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use super::Column;
use crate::batch;
use crate::rdma_programs::{RdmaProgram, Target};

/// The variable by which a program of the suite knows where to write its report.
const REPORT_VARIABLE: &str = "FARCALL_SUITE_REPORT";

const PROGRAM: RdmaProgram = RdmaProgram {
    package: "farcall-suite",
    target: Target::Test("grpc"),
    arguments: &["--quiet"],
    limit_seconds: 600,
};

/// The parts of a line that are read.
#[derive(Debug, Deserialize)]
struct Line {
    column: String,
    behaviour: String,
    outcome: String,
}

/// Runs the cases.
///
/// # Errors
///
/// Returns an error if the program cannot be built, or its report not be read.
pub(super) fn run() -> Result<Vec<Column>> {
    let folder = TempDir::with_prefix("farcall-interop-")?;
    let file = folder.path().join("report.jsonl");
    let mut jobs = PROGRAM.build(&Default::default())?;
    for job in &mut jobs {
        job.variables.push((REPORT_VARIABLE.to_owned(), file.display().to_string()));
    }
    let ran = batch::run(&jobs);
    if let Err(error) = &ran {
        eprintln!("xtask: {error:#}");
    }
    checked(read(&file)?, ran)
}

/// The columns, if they say all that became of the program.
fn checked(columns: Vec<Column>, ran: Result<()>) -> Result<Vec<Column>> {
    let cases = columns.iter().map(|column| column.passed + column.failed.len());
    ensure!(cases.sum::<usize>() > 0, "the suite's test reported no case");
    // A behaviour that fails makes the program fail, and is in its report.
    if columns.iter().all(|column| column.failed.is_empty()) {
        ran.context("the suite's test failed, but all cases of its report hold")?;
    }
    Ok(columns)
}

fn read(file: &Path) -> Result<Vec<Column>> {
    let text = std::fs::read_to_string(file).context("the suite's test wrote no report")?;
    parse(&text)
}

/// The columns of a report. What was planned and never ended has failed.
fn parse(text: &str) -> Result<Vec<Column>> {
    let mut cases: Vec<(String, String, bool)> = Vec::new();
    for line in text.lines() {
        let parsed = serde_json::from_str(line);
        let Line { column, behaviour, outcome } =
            parsed.with_context(|| format!("cannot parse a line: {line}"))?;
        if outcome == "absent" {
            continue;
        }
        let has_passed = outcome == "passed";
        match cases.iter_mut().find(|case| (&case.0, &case.1) == (&column, &behaviour)) {
            Some(case) => case.2 = has_passed,
            None => cases.push((column, behaviour, has_passed)),
        }
    }
    let mut columns: Vec<Column> = Vec::new();
    for (name, behaviour, has_passed) in cases {
        if columns.last().is_none_or(|column| column.name != name) {
            columns.push(Column { name, ..Column::default() });
        }
        if let Some(column) = columns.last_mut() {
            match has_passed {
                true => column.passed += 1,
                false => column.failed.push(behaviour),
            }
        }
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_planned_and_never_ended_has_failed() {
        let line = |column: &str, name: &str, outcome: &str| {
            format!(r#"{{"column":"{column}","behaviour":"{name}","outcome":"{outcome}"}}"#)
        };
        let text = [
            line("grpc-port", "a", "planned"),
            line("grpc-port", "b", "planned"),
            line("grpc-port", "c", "absent"),
            line("grpc-to-tonic", "a", "planned"),
            line("grpc-to-tonic", "a", "passed"),
            line("grpc-port", "a", "passed"),
        ];
        let columns = parse(&text.join("\n")).unwrap();
        let column = |name: &str, passed, failed: &[&str]| Column {
            name: name.into(),
            passed,
            failed: failed.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(columns, [column("grpc-port", 1, &["b"]), column("grpc-to-tonic", 1, &[])]);
    }

    #[test]
    fn a_program_that_failed_is_in_its_report_or_an_error() {
        let column = |passed, failed: &[&str]| Column {
            name: "grpc-port".into(),
            passed,
            failed: failed.iter().map(|name| (*name).to_owned()).collect(),
        };
        let failed = || Err(anyhow::anyhow!("it was killed"));
        let text = |columns, ran| format!("{:#}", checked(columns, ran).unwrap_err());
        assert_eq!(checked(vec![column(2, &[])], Ok(())).unwrap().len(), 1);
        assert_eq!(checked(vec![column(2, &["a"])], failed()).unwrap().len(), 1);
        assert!(text(vec![column(2, &[])], failed()).ends_with("report hold: it was killed"));
        let nothing = "the suite's test reported no case";
        assert_eq!(text(Vec::new(), Ok(())), nothing);
        assert_eq!(text(vec![column(0, &[])], failed()), nothing);
    }
}
