//! Python's cases: the packages, the client and the server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use super::Column;
use super::route::{CASES_LIMIT, Route};
use super::server::folder;

/// The client.
const CLIENT: &str = include_str!("client.py");

/// The server for clients of farcall.
const SERVER: &str = include_str!("server.py");

/// The client of farcall's own protocol that `docs/book/src/protocol.md` shows.
const PROTOCOL_CLIENT: &str = include_str!("../../../docs/book/src/protocol/client.py");

/// Packages of PyPI that it imports.
const PACKAGES: [&str; 5] =
    ["grpcio", "grpcio-channelz", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"];

const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// Returns true if there is a Python with the packages, or with `pip` and a PyPI that has them.
pub(super) fn is_possible() -> bool {
    bounded::succeeds(Command::new("python3").args(["-m", "venv", "--help"]), PROBE_LIMIT)
        && environment().is_ok()
}

/// Runs the client's cases.
///
/// # Errors
///
/// Returns an error if the packages cannot be installed, or the client does not come to its end.
pub(super) fn column(route: &Route, calls: u32) -> Result<Column> {
    let mut client = script("client.py", CLIENT)?;
    client.args([&*route.target, route.security]).arg(folder()?).arg(calls.to_string());
    client.args(route.left_out);
    Column::parse(&format!("grpcio-{}", route.name), &bounded::output(&mut client, CASES_LIMIT)?)
}

/// Runs the cases of the client of farcall's own protocol against the server at `authority`.
///
/// # Errors
///
/// Returns an error if the client does not come to its end.
pub(super) fn protocol_column(authority: &str) -> Result<Column> {
    let mut client = script("protocol_client.py", PROTOCOL_CLIENT)?;
    client.arg(authority);
    Column::parse("docs/protocol-client", &bounded::output(&mut client, CASES_LIMIT)?)
}

/// The server with default options.
///
/// # Errors
///
/// Returns an error if the packages cannot be installed.
pub(super) fn server() -> Result<Command> {
    let mut server = script("server.py", SERVER)?;
    server.arg(folder()?);
    Ok(server)
}

/// Python with this script.
fn script(name: &str, text: &str) -> Result<Command> {
    let file = folder()?.join(name);
    std::fs::write(&file, text)?;
    let mut command = Command::new(environment()?);
    command.arg(file);
    Ok(command)
}

/// Returns a Python that has gRPC's packages.
///
/// # Errors
///
/// Returns an error if there is no Python, or the packages cannot be installed.
pub(crate) fn environment() -> Result<PathBuf> {
    environment_with(
        &PACKAGES,
        "import grpc, grpc_channelz, grpc_health, grpc_reflection, grpc_status",
    )
}

/// Returns a Python with packages of PyPI, in a virtual environment of the target folder. `imports`
/// is a line that succeeds where they are installed.
///
/// # Errors
///
/// Returns an error if there is no Python, or the packages cannot be installed.
pub(crate) fn environment_with(packages: &[&str], imports: &str) -> Result<PathBuf> {
    let venv = folder()?.join("venv");
    let python = venv.join("bin/python");
    if has_packages(&python, imports) {
        return Ok(python);
    }
    eprintln!("xtask: installing {} of PyPI into {}", packages.join(", "), venv.display());
    bounded::run(Command::new("python3").args(["-m", "venv"]).arg(&venv), INSTALL_LIMIT)
        .context("python3 cannot create a virtual environment (Debian: python3-venv)")?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    bounded::run(&mut pip, INSTALL_LIMIT).context("cannot install PyPI's packages")?;
    Ok(python)
}

fn has_packages(python: &Path, imports: &str) -> bool {
    python.exists() && bounded::succeeds(Command::new(python).args(["-c", imports]), PROBE_LIMIT)
}
