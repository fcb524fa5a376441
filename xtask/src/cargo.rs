//! Starting cargo, and asking it for the executables that it builds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::bounded;

/// An executable that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The name of its target.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The folder of its package, in which cargo would run its tests.
    pub(crate) package: PathBuf,
}

/// A cargo command.
pub(crate) fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments);
    command
}

/// Builds with `arguments` and returns the executables: those of tests for `cargo test --no-run`,
/// programs for `cargo build`.
///
/// # Errors
///
/// When the build fails or lasts longer than `limit`.
pub(crate) fn executables(arguments: &[&str], limit: Duration) -> Result<Vec<Executable>> {
    let wants_tests = arguments.first() == Some(&"test");
    let mut command = command(arguments);
    command.arg("--message-format=json-render-diagnostics");
    executables_in(&bounded::output(&mut command, limit)?, wants_tests)
}

/// What is read of cargo's messages, which are JSON values, one a line.
#[derive(Deserialize)]
struct Message {
    reason: String,
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

fn executables_in(messages: &str, wants_tests: bool) -> Result<Vec<Executable>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("a message of cargo that is not understood: {line}"))?;
        if message.reason != "compiler-artifact" {
            continue;
        }
        // An integration test has its package's programs built too, which are not tests.
        let (Some(path), Some(target)) = (message.executable, message.target) else { continue };
        if message.profile.is_some_and(|profile| profile.test) != wants_tests {
            continue;
        }
        let manifest = message.manifest_path.context("an artifact of cargo without a manifest")?;
        let package = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        found.push(Executable { name: target.name, path, package });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, test: bool, executable: Option<&str>) -> String {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
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
        let names = |wants_tests| {
            let found = executables_in(&messages(), wants_tests).unwrap();
            found.into_iter().map(|executable| executable.name).collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["suite"]);
        assert_eq!(names(false), ["tool"]);
    }

    #[test]
    fn an_executable_knows_its_package() {
        let found = executables_in(&messages(), true).unwrap();
        assert_eq!(found[0].package, Path::new("/w/a"));
        assert_eq!(found[0].path, Path::new("/t/suite-1"));
    }

    #[test]
    fn a_message_that_is_not_understood_is_shown() {
        let error = executables_in("{\"reason\":1}", true).unwrap_err();
        assert!(error.to_string().contains("{\"reason\":1}"));
    }
}
