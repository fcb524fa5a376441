//! Python's cases: the packages, the server and the client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::{Process, bounded};

use super::Column;
use crate::rdma_programs::{RdmaProgram, Target};

/// The client.
const CLIENT: &str = include_str!("client.py");

/// What of PyPI it imports.
const PACKAGES: [&str; 4] =
    ["grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"];

const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(30);

/// The bound on all cases: each has one of 20 s, and together they take some seconds.
const CASES_LIMIT: Duration = Duration::from_secs(120);

const SERVER: RdmaProgram = RdmaProgram {
    package: "farcall-suite",
    target: Target::Bin { name: "farcall-interop", test: "unix" },
    arguments: &[],
    limit_seconds: CASES_LIMIT.as_secs(),
};

/// Whether there is a Python with the packages, or with `pip` and a PyPI that has them.
pub(super) fn is_possible() -> bool {
    bounded::succeeds(Command::new("python3").args(["-m", "venv", "--help"]), PROBE_LIMIT)
        && environment().is_ok()
}

/// The columns: how the client is told to connect, in the order of the server's addresses.
const COLUMNS: [(&str, &str); 3] = [
    ("python-to-port", "plain"),
    ("python-to-port-tls", "tls"),
    ("python-to-port-mutual-tls", "mutual"),
];

/// Runs the cases without TLS, with it, and with certificates of both sides.
///
/// # Errors
///
/// When the packages cannot be installed, or the server or the client cannot be started.
pub(super) fn run() -> Result<Vec<Column>> {
    let python = environment()?;
    let jobs = SERVER.build(&Default::default())?;
    let program = jobs.into_iter().next().context("the build gave no program")?.program;
    let folder = folder()?;
    let mut server = Process::start("the server", Command::new(program).arg(&folder))?;
    let script = folder.join("client.py");
    std::fs::write(&script, CLIENT)?;
    let mut columns = Vec::new();
    for (name, security) in COLUMNS {
        let address = server.line(START_LIMIT)?;
        let target = address.strip_prefix("tcp://").unwrap_or(&address);
        let mut client = Command::new(&python);
        client.arg(&script).args([target, security]).arg(&folder);
        columns.push(parse(name, &bounded::output(&mut client, CASES_LIMIT)?)?);
    }
    Ok(columns)
}

/// The folder of everything that is Python's.
fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(PathBuf::from(target).join("interop"))?;
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A Python with the packages, in a virtual environment of the target folder.
fn environment() -> Result<PathBuf> {
    let venv = folder()?.join("venv");
    let python = venv.join("bin/python");
    if has_packages(&python) {
        return Ok(python);
    }
    eprintln!("xtask: installing {} of PyPI into {}", PACKAGES.join(", "), venv.display());
    bounded::run(Command::new("python3").args(["-m", "venv"]).arg(&venv), INSTALL_LIMIT)
        .context("python3 makes no virtual environment (Debian: python3-venv)")?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    bounded::run(&mut pip, INSTALL_LIMIT).context("PyPI's packages cannot be installed")?;
    Ok(python)
}

fn has_packages(python: &Path) -> bool {
    let imports = "import grpc, grpc_health, grpc_reflection, grpc_status";
    python.exists() && bounded::succeeds(Command::new(python).args(["-c", imports]), PROBE_LIMIT)
}

/// Reads a line for each case.
fn parse(name: &str, text: &str) -> Result<Column> {
    ensure!(text.ends_with("done\n"), "the client did not come to its end: {text}");
    let mut column = Column { name: name.to_owned(), ..Column::default() };
    for line in text.lines() {
        if line.strip_prefix("ok ").is_some() {
            column.passed += 1;
        } else if let Some(case) = line.strip_prefix("FAILED ") {
            column.failed.push(case.to_owned());
        }
    }
    ensure!(column.passed + column.failed.len() > 0, "the client had no case: {text}");
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_line_by_line() {
        let text = "ok empty_unary\nFAILED gzip: it broke\nwords\nok deadline\ndone\n";
        let column = parse("python", text).unwrap();
        assert_eq!((column.passed, column.failed), (2, vec!["gzip: it broke".to_owned()]));
        assert!(parse("python", "ok empty_unary\n").is_err(), "it did not come to its end");
        assert!(parse("python", "done\n").is_err(), "it had no case");
    }
}
