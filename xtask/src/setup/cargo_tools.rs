//! The parts of the Rust toolchain that checks need: `rustfmt`, `clippy` and `cargo-deny`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

/// One version for everybody, because a newer one may find new faults in an unchanged tree.
const CARGO_DENY: &str = "0.20.2";

/// Its 300 crates take about two minutes of one core.
const CARGO_DENY_LIMIT: Duration = Duration::from_secs(1200);
const COMPONENT_LIMIT: Duration = Duration::from_secs(300);
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Adds what is missing.
///
/// # Errors
///
/// Returns an error if a component or `cargo-deny` is missing and cannot be installed.
pub(crate) fn ensure() -> Result<()> {
    ensure_component("rustfmt", "fmt")?;
    ensure_component("clippy", "clippy")?;
    if cargo_deny_version().as_deref() == Some(CARGO_DENY) {
        return Ok(());
    }
    eprintln!("xtask: installing cargo-deny {CARGO_DENY} (checks licences and sources)");
    let wanted = format!("cargo-deny@{CARGO_DENY}");
    // Without optimisation it builds in a quarter of the time and is fast enough.
    let arguments = ["install", "--locked", &wanted, "--profile", "dev", "--force"];
    bounded::run(Command::new("cargo").args(arguments), CARGO_DENY_LIMIT)
        .context("installing cargo-deny")
}

/// The version of the installed `cargo-deny`, if there is one.
fn cargo_deny_version() -> Option<String> {
    let mut command = Command::new("cargo");
    command.args(["deny", "--version"]).stderr(std::process::Stdio::null());
    let printed = bounded::output(&mut command, PROBE_LIMIT).ok()?;
    printed.split_whitespace().last().map(str::to_owned)
}

fn ensure_component(component: &str, subcommand: &str) -> Result<()> {
    if bounded::succeeds(Command::new("cargo").args([subcommand, "--version"]), PROBE_LIMIT) {
        return Ok(());
    }
    eprintln!("xtask: adding the Rust component {component}");
    bounded::run(Command::new("rustup").args(["component", "add", component]), COMPONENT_LIMIT)
        .with_context(|| {
            format!("the Rust component {component} is missing; add it to the toolchain")
        })
}
