//! `cargo xtask interop`: gRPC's interoperability cases, with tonic, Python's `grpcio` and
//! JavaScript's `grpc-js` on either side, through HAProxy, nginx and `farcall proxy`, with the
//! command `farcall` as a client, and with grpc-web from a browser, without TLS and with it, as a
//! matrix with a verdict.
//!
//! tonic's cases are the suite's test `grpc`. Those of Python and JavaScript are `client.py` and
//! `client.js`, against the port of `farcall-interop`, which is the client of `server.py` and
//! `server.js`. Their packages come from PyPI and npm into the target folder. The browser's cases
//! are in the release tooling, `xtask/release/src/browser`.

mod balancers;
mod clients;
mod command;
mod node;
mod python;
mod route;
mod server;
mod tonic;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use farcall_testkit::process::bounded;

use crate::release;
use crate::setup::{self, Purpose};
pub(crate) use python::{environment, environment_with};
pub use server::{Server, folder};

/// The bound on the browser's columns, with the installation of Chromium.
const BROWSER_LIMIT: Duration = Duration::from_secs(1800);

/// The calls that each client makes at once among the checks. A tenth is more than the server lets
/// a connection have (1,024).
const CALLS_AT_ONCE: u32 = 20_000;

/// A silence of a call under which a server that counts pings, as `grpcio`'s does, ends the
/// connection of a client that sends too many. The checks leave it out.
const SILENCE: Duration = Duration::from_secs(120);

/// Arguments of `cargo xtask interop`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InteropOptions {
    /// Leave out tonic's cases, which every build runs as the suite's test `grpc`, and the
    /// browser's, which need Chromium: 410 MB.
    #[arg(long)]
    quick: bool,
    /// Run the browser's cases alone.
    #[arg(long, conflicts_with = "quick")]
    browser: bool,
    /// Calls that each client makes at once; a tenth of that with TLS or on a way round.
    #[arg(long, default_value_t = CALLS_AT_ONCE)]
    calls: u32,
}

/// The cases of one client against one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Column {
    name: String,
    passed: usize,
    failed: Vec<String>,
}

impl Column {
    /// Reads a line for each case, as clients write them.
    ///
    /// # Errors
    ///
    /// Returns an error if the client broke off, or had no case.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        ensure!(text.ends_with("done\n"), "{name}: the client did not finish: {text}");
        let mut column = Self { name: name.to_owned(), ..Self::default() };
        for line in text.lines() {
            if line.strip_prefix("ok ").is_some() {
                column.passed += 1;
            } else if let Some(case) = line.strip_prefix("FAILED ") {
                column.failed.push(case.to_owned());
            }
        }
        let count = column.passed + column.failed.len();
        ensure!(count > 0, "{name}: the client ran no case: {text}");
        Ok(column)
    }
}

/// Shows all cases.
///
/// # Errors
///
/// Returns an error if something cannot be built or installed, or if a case fails.
pub(crate) fn run(options: &InteropOptions) -> Result<()> {
    let is_whole = !options.quick && !options.browser;
    setup::ensure(&[Purpose::Build])?;
    let mut columns = Vec::new();
    if is_whole {
        columns.extend(tonic::run()?);
    }
    if is_whole || options.quick {
        columns.extend(clients::run(options.calls, is_whole.then_some(SILENCE))?);
    }
    let here = if columns.is_empty() { Ok(()) } else { judge(&columns) };
    if is_whole || options.browser {
        let mut browser = Command::new(release::build()?);
        bounded::run(browser.arg("browser"), BROWSER_LIMIT)?;
    }
    here
}

/// Prints the matrix of `columns`.
///
/// # Errors
///
/// Returns an error if a case has failed.
pub fn judge(columns: &[Column]) -> Result<()> {
    print!("{}", matrix(columns));
    let failed: Vec<_> = columns
        .iter()
        .flat_map(|column| column.failed.iter().map(|case| format!("{}: {case}", column.name)))
        .collect();
    // The last table of a run shows only this error.
    ensure!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join("; "));
    Ok(())
}

/// The short form, as one of the checks: the cases of Python, where Python can have its packages,
/// with those of JavaScript and the load balancers, where they can be had.
///
/// # Errors
///
/// Returns the errors of [`run`]. `None` where there is no Python, or PyPI cannot be reached.
pub(crate) fn quick() -> Result<Option<()>> {
    if !python::is_possible() {
        return Ok(None);
    }
    let options = InteropOptions { quick: true, browser: false, calls: CALLS_AT_ONCE };
    run(&options).map(Some)
}

/// The columns as lines, and the verdict.
fn matrix(columns: &[Column]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("\nclient and server             passed  failed\n");
    for Column { name, passed, failed } in columns {
        let _ = writeln!(text, "{name:<28} {passed:>7} {:>7}", failed.len());
        for case in failed {
            let _ = writeln!(text, "    {case}");
        }
    }
    let passed: usize = columns.iter().map(|column| column.passed).sum();
    let failed: usize = columns.iter().map(|column| column.failed.len()).sum();
    let verdict = if failed == 0 { "all hold" } else { "NOT all hold" };
    let _ = writeln!(text, "{verdict}: {passed} passed, {failed} failed");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_line_by_line() {
        let text = "ok empty_unary\nFAILED gzip: it broke\nwords\nok deadline\ndone\n";
        let column = Column::parse("python", text).unwrap();
        assert_eq!((column.passed, column.failed), (2, vec!["gzip: it broke".to_owned()]));
        assert!(Column::parse("python", "ok empty_unary\n").is_err(), "it did not come to its end");
        assert!(Column::parse("python", "done\n").is_err(), "it had no case");
    }

    #[test]
    fn the_verdict_counts_every_column() {
        let good = Column { name: "grpc-port".into(), passed: 39, failed: Vec::new() };
        let text = matrix(std::slice::from_ref(&good));
        assert!(text.ends_with("all hold: 39 passed, 0 failed\n"), "{text}");
        let failed = vec!["gzip: it broke".to_owned()];
        let bad = Column { name: "python".into(), passed: 20, failed };
        let columns = [good, bad];
        let error = judge(&columns).unwrap_err().to_string();
        assert_eq!(error, "1 cases failed: python: gzip: it broke");
        let text = matrix(&columns);
        assert!(text.contains("    gzip: it broke\n"), "{text}");
        assert!(text.ends_with("NOT all hold: 59 passed, 1 failed\n"), "{text}");
    }
}
