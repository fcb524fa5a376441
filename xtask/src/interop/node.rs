//! grpc-js's cases: the packages, the client and the server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use super::route::{CASES_LIMIT, Route};
use super::{Column, server::folder};
use crate::program;

/// The client, and the server for clients of farcall.
const SCRIPTS: [(&str, &str); 2] =
    [("client.js", include_str!("client.js")), ("server.js", include_str!("server.js"))];

/// Packages of npm's registry that they import.
const PACKAGES: [&str; 3] = ["@grpc/grpc-js", "@grpc/proto-loader", "@grpc/reflection"];

const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// Prepares the scripts and their packages; false where there is no Node or no registry, which is
/// said.
pub(super) fn is_possible() -> bool {
    match prepare() {
        Ok(()) => true,
        Err(error) => {
            eprintln!("xtask: no grpc-js: {error:#}");
            false
        }
    }
}

fn prepare() -> Result<()> {
    let work = folder()?.join("node");
    std::fs::create_dir_all(&work)?;
    for (name, text) in SCRIPTS {
        std::fs::write(work.join(name), text)?;
    }
    program::find("node").context("there is no program node (Debian: nodejs)")?;
    if has_packages(&work) {
        return Ok(());
    }
    program::find("npm").context("there is no program npm (Debian: npm)")?;
    eprintln!("xtask: installing {} of npm into {}", PACKAGES.join(", "), work.display());
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(&work);
    bounded::run(npm.args(PACKAGES), INSTALL_LIMIT).context("cannot install npm's packages")?;
    Ok(())
}

fn has_packages(work: &Path) -> bool {
    let mut node = Command::new("node");
    let imports = PACKAGES.map(|name| format!("require('{name}')")).join(";");
    bounded::succeeds(node.args(["-e", &imports]).current_dir(work), PROBE_LIMIT)
}

/// Runs a script with these arguments.
fn script(name: &str) -> Result<Command> {
    let mut command = Command::new("node");
    // It warns of certificates for addresses.
    command.env("NODE_NO_WARNINGS", "1").arg(folder()?.join("node").join(name));
    Ok(command)
}

/// Runs the client's cases.
pub(super) fn column(route: &Route, calls: u32) -> Result<Column> {
    let mut client = script("client.js")?;
    client.args([&*route.target, route.security]).arg(folder()?).arg(calls.to_string());
    Column::parse(&format!("grpc-js-{}", route.name), &bounded::output(&mut client, CASES_LIMIT)?)
}

/// The server with default options.
pub(super) fn server() -> Result<Command> {
    let mut server = script("server.js")?;
    server.arg(folder()?);
    Ok(server)
}
