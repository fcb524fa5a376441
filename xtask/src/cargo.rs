//! Starting cargo, and asking it for the executables that it builds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;
use serde::Deserialize;

/// An executable that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub struct Executable {
    /// The name of its target.
    pub name: String,
    /// Path of the executable.
    pub path: PathBuf,
    /// The name of its package.
    pub package: String,
    /// The folder of its package, in which cargo would run its tests.
    pub directory: PathBuf,
    /// Set if it is the test of its target, not the program.
    pub is_test: bool,
}

/// The workspace with every feature but `rdma-sys`. All that is not optimised is built with this
/// selection and a filter of targets: another selection gives libraries other features, and cargo
/// then compiles them, and all that stands above them, once more. The release tooling is left out:
/// the step `package` checks it.
pub(crate) const WORKSPACE: &[&str] =
    &["--workspace", "--exclude", "farcall-release", "--features", FEATURES];

/// The features that are off by default, each with its package.
const FEATURES: &str = "farcall/compression,farcall/dns,farcall/grpc,farcall/metrics,farcall/otel,\
     farcall/sim,farcall/testing,farcall/tls-platform-verifier,farcall/tonic-connect-info,\
     rpc-transport-rdma/fuzzing,rpc-transport-rdma/sim,\
     rpc-transport-tcp/fuzzing,rpc-codegen-real-input/sample-client,\
     rpc-codegen-real-input/sample-server";

/// The first cargo that packs crates which depend on each other before any is published.
const PACKING_MIN: (u32, u32) = (1, 90);

/// Printing a version.
const VERSION_LIMIT: Duration = Duration::from_secs(120);

/// Returns the reason why this machine's cargo cannot pack the workspace, if it cannot.
///
/// # Errors
///
/// Returns an error if cargo prints no version.
pub fn too_old_to_pack() -> Result<Option<String>> {
    let printed = bounded::output(&mut command(["--version"]), VERSION_LIMIT)?;
    let version = version(&printed).with_context(|| format!("not a version: {printed}"))?;
    let (major, minor) = PACKING_MIN;
    let reason = || format!("packing a workspace needs cargo {major}.{minor}: this is {printed}");
    Ok((version < PACKING_MIN).then(|| reason().trim_end().to_owned()))
}

/// Major and minor version in the line that `cargo --version` prints.
fn version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A cargo command.
pub fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments);
    command
}

/// Builds with `arguments` and returns the executables: tests, and programs. With an integration
/// test come the programs of its package.
///
/// # Errors
///
/// Returns an error if the build fails or lasts longer than `limit`.
pub fn executables(arguments: &[&str], limit: Duration) -> Result<Vec<Executable>> {
    let mut command = command(arguments);
    command.arg("--message-format=json-render-diagnostics");
    executables_in(&bounded::output(&mut command, limit)?)
}

/// The parts of cargo's messages that are read. A message is a JSON value on a line.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn executables_in(messages: &str) -> Result<Vec<Executable>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("cannot parse a message of cargo: {line}"))?;
        if message.reason != "compiler-artifact" {
            continue;
        }
        let (Some(path), Some(target)) = (message.executable, message.target) else { continue };
        let is_test = message.profile.is_some_and(|profile| profile.test);
        let manifest = message.manifest_path.context("an artifact of cargo without a manifest")?;
        let directory = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        let id = message.package_id.context("an artifact of cargo without a package")?;
        let package = package_name(&id).to_owned();
        found.push(Executable { name: target.name, path, package, directory, is_test });
    }
    Ok(found)
}

/// The name in a package's id: `path+file:///w/folder#name@0.1.0`, without the name where that is
/// the folder's.
fn package_name(id: &str) -> &str {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_cargo_is_read() {
        assert_eq!(version("cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n"), Some((1, 95)));
        assert_eq!(version("cargo 1.88.0-nightly\n"), Some((1, 88)));
        assert_eq!(version("cargo"), None);
    }

    fn artifact(name: &str, test: bool, executable: Option<&str>) -> String {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///w/a#0.1.0",
            "manifest_path": "/w/a/Cargo.toml",
            "target": { "name": name },
            "profile": { "test": test },
            "executable": executable,
        });
        format!("{message}\n")
    }

    fn messages() -> String {
        let finished = "{\"reason\":\"build-finished\",\"success\":true}\n".to_owned();
        let library = artifact("a", false, None);
        let program = artifact("tool", false, Some("/t/tool"));
        let test = artifact("suite", true, Some("/t/suite-1"));
        [library, program, test, finished].concat()
    }

    #[test]
    fn tests_and_programs_are_told_apart() {
        let found = executables_in(&messages()).unwrap();
        let found: Vec<_> =
            found.iter().map(|found| (found.name.as_str(), found.is_test)).collect();
        assert_eq!(found, [("tool", false), ("suite", true)]);
    }

    #[test]
    fn an_executable_knows_its_package() {
        let found = executables_in(&messages()).unwrap();
        assert_eq!((found[1].package.as_str(), &*found[1].directory), ("a", Path::new("/w/a")));
        assert_eq!(found[1].path, Path::new("/t/suite-1"));
    }

    #[test]
    fn packages_are_named_by_their_ids() {
        assert_eq!(package_name("path+file:///w/tests/suite#farcall-suite@0.1.0"), "farcall-suite");
        assert_eq!(package_name("path+file:///w/farcall#0.1.0"), "farcall");
    }

    #[test]
    fn a_message_that_is_not_understood_is_shown() {
        let error = executables_in("{\"reason\":1}").unwrap_err();
        assert!(error.to_string().contains("{\"reason\":1}"));
    }
}
