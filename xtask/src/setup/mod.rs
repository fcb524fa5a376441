//! `cargo xtask setup`: makes the machine able to build, check and run farcall.
//!
//! Every other command calls [`ensure`] for what it needs, so that a bare machine works without
//! this command.

mod advice;
mod apt;
mod cargo_tools;
mod libclang;
mod needs;
pub(crate) mod rust;
mod system;

use anyhow::{Result, bail};

pub(crate) use libclang::ensure as libclang;
pub(crate) use needs::static_busybox;
pub use needs::{Purpose, chromium};
use system::System;

/// Sees to everything that `purposes` need, installing what is missing.
///
/// # Errors
///
/// Returns an error if something is missing that cannot be installed; the error names it and says
/// what to do.
pub fn ensure(purposes: &[Purpose]) -> Result<()> {
    ensure_packages(purposes)?;
    if purposes.contains(&Purpose::Checks) {
        cargo_tools::ensure()?;
    }
    Ok(())
}

fn ensure_packages(purposes: &[Purpose]) -> Result<()> {
    let missing = needs::missing(purposes);
    if missing.is_empty() {
        return Ok(());
    }
    let system = System::read();
    eprintln!("xtask: missing on this machine:");
    for line in advice::packages(&system, &missing) {
        eprintln!("xtask:   {line}");
    }
    if !apt::may_install() {
        bail!(advice::command(&system, &missing));
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.debian()).collect();
    apt::install(&packages)?;
    let still = needs::missing(purposes);
    if let Some(need) = still.first() {
        let package = need.debian();
        bail!("{package} was installed, but {} is still not there: {}", need.probe, need.reason);
    }
    Ok(())
}

/// Returns true if everything that `purposes` need is there.
pub(crate) fn is_ready(purposes: &[Purpose]) -> bool {
    needs::missing(purposes).is_empty()
}

/// Sees to everything that `purposes` need where packages can be installed. Elsewhere it returns a
/// line for each thing that is missing, with what installs it: none means that everything is there.
///
/// # Errors
///
/// Returns an error if an installation that should be possible fails.
pub(crate) fn ensure_where_possible(purposes: &[Purpose]) -> Result<Vec<String>> {
    let missing = needs::missing(purposes);
    if missing.is_empty() || apt::may_install() {
        ensure(purposes)?;
        return Ok(Vec::new());
    }
    Ok(advice::remedies(&System::read(), &missing))
}
