//! The programs, run as a user runs them.

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv-demo"));
    command.args(arguments).output().expect("the demo starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_prints_a_row_for_each_transport_and_size() {
    let arguments = ["inproc://demo", "tcp://127.0.0.1:0", "--calls", "3", "--sizes", "64,1048576"];
    let output = demo(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).take(4).map(|line| line.split_whitespace().collect()).collect();
    let paths: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[4], row[5])).collect();
    let expected = [
        ("inproc", "inproc", "queue", "8"),
        ("inproc", "inproc", "queue", "8"),
        ("tcp", "tcp", "whole", "8"),
        ("tcp", "tcp", "pieces", "8"),
    ];
    assert_eq!(paths, expected, "{table}");
}

#[test]
fn emulated_speeds_are_marked_and_explained() {
    let arguments = ["inproc://demo", "--emulated", "--calls", "3", "--sizes", "64"];
    let output = demo(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let row = table.lines().nth(1).expect("it has a row");
    let cells: Vec<_> = row.split_whitespace().collect();
    for speed in &cells[6..9] {
        assert!(speed.starts_with('(') && speed.ends_with(')'), "{row}");
    }
    assert_eq!(cells[5], "8", "a count is no speed: {row}");
    assert!(table.contains("( ) marks times and rates of an emulated processor"), "{table}");
}

/// No RDMA device has the address of the loopback interface.
#[test]
fn the_demo_fails_where_rdma_is_demanded_and_not_possible() {
    let output = demo(&["rdma://127.0.0.1:0", "--calls", "1", "--sizes", "64"]);
    assert!(!output.status.success());
    let message = text(&output.stderr);
    assert!(message.contains("RDMA is required"), "{message}");
}

#[test]
fn the_demo_says_why_a_connection_fell_back() {
    let output = demo(&["auto://127.0.0.1:0", "--calls", "1", "--sizes", "64"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let row = table.lines().nth(1).expect("it has a row");
    assert!(row.starts_with("auto") && row.contains("rdma: this host:"), "{row}");
}
