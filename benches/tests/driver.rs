//! The driver from end to end, with so few calls that it is no measurement.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the driver with few, short rounds.
fn driver(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall-bench"));
    command.args(["--rounds", "2", "--millis", "200", "--commit", "none"]).args(arguments);
    command.output().expect("the driver can be started")
}

fn figures(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a file of results");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_figure_is_measured_shown_and_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let ended = driver(&["--only", "T1", "--json", file.to_str().unwrap()]);
    let table = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{table}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(table.contains("ratio to std"), "{table}");
    let figures = figures(&file);
    let figure = &figures["T1"];
    assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0), "{figures}");
    assert_eq!(figure["unit"], "ratio to std");
    assert_eq!(figure["rounds"].as_array().map(Vec::len), Some(2));
    assert_eq!(figure["commit"], "none");
    assert!(figure["sides"]["farcall"]["cpu_us_per_call"].as_f64().is_some());
}

#[test]
fn allocations_are_counted_by_programs_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let ended = driver(&["--only", "T7", "--json", file.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let value = figures(&file)["T7"]["value"].as_f64().unwrap();
    // The suite's test of allocations holds the number; here it only has to be one.
    assert!((1.0..100.0).contains(&value), "{value}");
}

#[test]
fn what_cannot_be_measured_fails_and_says_why() {
    let ended = driver(&["--only", "T5", "--peers", "no-such-program"]);
    assert!(!ended.status.success());
    let table = String::from_utf8_lossy(&ended.stdout);
    assert!(table.contains("T5   not measured: no-such-program is not built"), "{table}");
}
