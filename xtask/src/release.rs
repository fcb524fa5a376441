//! Building and starting the release tooling, a package of its own: `cargo xtask demo` and most
//! checks never compile it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::cargo;
use crate::rdma_programs::BUILD_LIMIT;

/// Cargo's selection of the package.
pub(crate) const PACKAGE: &[&str] = &["--package", "farcall-release"];

/// Arguments that go to the release tooling unchanged.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ReleaseOptions {
    /// Arguments of the task: `--help` lists them.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with the release tooling's `task`, so that signals reach it and its status
/// is ours.
///
/// # Errors
///
/// Returns an error if the package cannot be built or started.
pub(crate) fn replace(task: &str, options: ReleaseOptions) -> Result<()> {
    let program = build()?;
    let error = Command::new(&program).arg(task).args(options.arguments).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Builds the package and returns its program.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn build() -> Result<PathBuf> {
    let built = cargo::executables(&[&["build"], PACKAGE].concat(), BUILD_LIMIT)?;
    let program = built.into_iter().next().context("cargo built no release tooling")?;
    Ok(program.path)
}
