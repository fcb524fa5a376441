//! Services whose trait and messages other people's crates publish, served by farcall unchanged.
//!
//! The program stands in a document for readers who have such a service. It calls every method and
//! fails when an answer is wrong; here is seen that it has called all of them over every path.

use std::process::Command;

use anyhow::{Result, bail};
use farcall_testkit::process::bounded::{self, command_line};

use super::packed::{self, FETCH_LIMIT, Packed};
use super::user::{BUILD_LIMIT, CALL_LIMIT, UserCrate};

/// The document that shows the program.
const DOCUMENT: &str = "docs/book/src/published-services.md";

/// The name of the program.
const PROGRAM: &str = "published";

/// The crates whose versions the outcome is about.
const CRATES: [&str; 4] = ["arrow-flight", "opentelemetry-proto", "tonic", "tonic-health"];

/// The services and their methods.
const SERVICES: [(&str, &str); 5] = [
    ("opentelemetry.proto.collector.logs.v1.LogsService", "Export"),
    ("opentelemetry.proto.collector.metrics.v1.MetricsService", "Export"),
    ("opentelemetry.proto.collector.trace.v1.TraceService", "Export"),
    ("grpc.health.v1.Health", "Check, Watch"),
    (
        "arrow.flight.protocol.FlightService",
        "Handshake, ListFlights, GetFlightInfo, PollFlightInfo, GetSchema, DoGet, DoPut, \
         DoExchange, DoAction, ListActions",
    ),
];

/// The paths that they are served over.
const PATHS: [&str; 2] = ["inproc", "tcp"];

/// Builds the document's program against `packages`, the versions that the workspace locks and the
/// newest ones of other crates, starts it, and prints a line for each service and path.
///
/// # Errors
///
/// Returns an error if a crate cannot be had, the program does not build, a call fails, or a
/// service is left out.
pub(super) fn are_served(packages: &[Packed]) -> Result<()> {
    let workspace = packed::metadata()?;
    let (root, target) = (&workspace.workspace_root, &workspace.target_directory);
    let user = UserCrate::shown_in(&root.join(DOCUMENT), packages, root)?;
    // The workspace does not lock all that the program needs: here the registry is asked.
    let mut fetch = user.cargo(&["fetch"], target);
    println!("{}", command_line(&fetch));
    bounded::run(&mut fetch, FETCH_LIMIT)?;
    let tree = ["tree", "--offline", "--depth", "1", "--prefix", "none", "--format", "{p}"];
    println!("{}", versions(&bounded::output(&mut user.cargo(&tree, target), CALL_LIMIT)?));
    bounded::run(&mut user.build(target), BUILD_LIMIT)?;
    let program = target.join("debug").join(PROGRAM);
    let printed = bounded::output(&mut Command::new(program), CALL_LIMIT);
    user.clean(target, PROGRAM)?;
    let printed = printed?;
    print!("{printed}");
    let missing = missing(&printed);
    if !missing.is_empty() {
        bail!("{DOCUMENT} does not print:\n{}", missing.join("\n"));
    }
    Ok(())
}

/// The crates of [`CRATES`] with their versions, of what `cargo tree` prints.
fn versions(tree: &str) -> String {
    let is_about =
        |line: &&str| line.split_once(' ').is_some_and(|(name, _)| CRATES.contains(&name));
    tree.lines().filter(is_about).collect::<Vec<_>>().join(", ")
}

/// The lines that should have been printed and were not.
fn missing(printed: &str) -> Vec<String> {
    let lines = PATHS.iter().flat_map(|path| {
        SERVICES.iter().map(move |(service, methods)| format!("{service} over {path}: {methods}"))
    });
    lines.filter(|line| !printed.lines().any(|printed| printed == line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_was_not_served_over_a_path_is_named() {
        let all = missing("");
        assert_eq!(all.len(), SERVICES.len() * PATHS.len());
        assert!(missing(&all.join("\n")).is_empty());
        let without_one = all[1..].join("\n");
        assert_eq!(missing(&without_one), all[..1]);
        // A line that lacks a method is another line.
        let shorter = all.join("\n").replace("Check, Watch", "Check");
        let expected: Vec<_> = all.iter().filter(|line| line.contains("Health")).collect();
        assert_eq!(missing(&shorter).iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn versions_are_those_of_the_crates_looked_at() {
        let tree = "published v0.1.0 (/a)\narrow-array v60.1.0\narrow-flight v60.1.0\n\
                    tonic v0.14.9\ntonic-prost v0.14.9\n\n";
        assert_eq!(versions(tree), "arrow-flight v60.1.0, tonic v0.14.9");
    }
}
