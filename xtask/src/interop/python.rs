//! Python's cases: the packages and the client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use super::Column;
use super::server::{Server, folder};

/// The client.
const CLIENT: &str = include_str!("client.py");

/// What of PyPI it imports.
const PACKAGES: [&str; 4] =
    ["grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"];

const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// The bound on all cases: each has one of 20 s, and together they take some seconds.
const CASES_LIMIT: Duration = Duration::from_secs(120);

/// Whether there is a Python with the packages, or with `pip` and a PyPI that has them.
pub(super) fn is_possible() -> bool {
    bounded::succeeds(Command::new("python3").args(["-m", "venv", "--help"]), PROBE_LIMIT)
        && environment().is_ok()
}

/// The columns: how the client is told to connect, in the order of the server's addresses.
const COLUMNS: [(&str, &str); 4] = [
    ("python-to-port", "plain"),
    ("python-to-port-tls", "tls"),
    ("python-to-port-mutual-tls", "mutual"),
    ("python-to-port-unix", "plain"),
];

/// Runs the cases without TLS, with it, with certificates of both sides, and over a Unix socket.
///
/// # Errors
///
/// When the packages cannot be installed, or the server or the client cannot be started.
pub(super) fn run() -> Result<Vec<Column>> {
    let python = environment()?;
    let (server, folder) = (Server::start(&[])?, folder()?);
    let script = folder.join("client.py");
    std::fs::write(&script, CLIENT)?;
    let mut columns = Vec::new();
    for ((name, security), target) in COLUMNS.into_iter().zip(&server.authorities) {
        let mut client = Command::new(&python);
        client.arg(&script).args([&**target, security]).arg(&folder);
        columns.push(Column::parse(name, &bounded::output(&mut client, CASES_LIMIT)?)?);
    }
    Ok(columns)
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
