//! `cargo xtask book`: renders the book into `target/book`.
//!
//! mdBook is a library of the program in `xtask/book`, a workspace of its own. No other build
//! compiles mdBook's dependencies, and there is no tool to install.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use farcall_testkit::process::bounded::{self, command_line};

use crate::cargo;

/// The manifest of the program.
pub(crate) const MANIFEST: &str = "xtask/book/Cargo.toml";

/// The bound on building the program from nothing and on rendering, which takes a second.
const LIMIT: Duration = Duration::from_secs(1200);

/// Renders the book, and checks the links of its pages.
///
/// # Errors
///
/// Returns an error if the program cannot be built, or if a page or the target of a link is
/// missing.
pub(crate) fn build() -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let arguments = ["run", "--locked", "--quiet", "--manifest-path", MANIFEST, "--target-dir"];
    let mut command = cargo::command(arguments);
    command.arg(target);
    println!("{}", command_line(&command));
    Ok(bounded::run(&mut command, LIMIT)?)
}
