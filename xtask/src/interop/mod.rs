//! `cargo xtask interop`: gRPC's interoperability cases, with tonic on either side and with
//! Python's `grpcio` as the client, without TLS and with it, as a matrix with a verdict.
//!
//! tonic's cases are the suite's test `grpc`. Python's are `client.py`, against the port of
//! `farcall-interop`; the packages come from PyPI into the target folder.

mod python;
mod tonic;

use anyhow::{Result, ensure};

use crate::setup::{self, Purpose};

/// Arguments of `cargo xtask interop`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InteropOptions {
    /// Leave tonic's cases out: every build runs them as the suite's test `grpc`.
    #[arg(long)]
    quick: bool,
}

/// How many cases of a column hold, and those that do not.
#[derive(Debug, Default, PartialEq, Eq)]
struct Column {
    name: String,
    passed: usize,
    failed: Vec<String>,
}

/// Shows all cases.
///
/// # Errors
///
/// When something cannot be built or installed, and when a case fails.
pub(crate) fn run(options: &InteropOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    let mut columns = Vec::new();
    if !options.quick {
        columns.extend(tonic::run()?);
    }
    columns.extend(python::run()?);
    print!("{}", matrix(&columns));
    let failed: usize = columns.iter().map(|column| column.failed.len()).sum();
    ensure!(failed == 0, "{failed} cases of interoperability failed");
    Ok(())
}

/// The short form, as one of the checks: Python's cases, where Python can have its packages.
///
/// # Errors
///
/// As [`run`]. `None` where there is no Python, or PyPI cannot be reached.
pub(crate) fn quick() -> Result<Option<()>> {
    if !python::is_possible() {
        return Ok(None);
    }
    run(&InteropOptions { quick: true }).map(Some)
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
    fn the_verdict_counts_every_column() {
        let good = Column { name: "grpc-port".into(), passed: 39, failed: Vec::new() };
        let text = matrix(std::slice::from_ref(&good));
        assert!(text.ends_with("all hold: 39 passed, 0 failed\n"), "{text}");
        let failed = vec!["gzip: it broke".to_owned()];
        let bad = Column { name: "python".into(), passed: 20, failed };
        let text = matrix(&[good, bad]);
        assert!(text.contains("    gzip: it broke\n"), "{text}");
        assert!(text.ends_with("NOT all hold: 59 passed, 1 failed\n"), "{text}");
    }
}
