//! `cargo xtask setup`: makes the machine able to build, check and run farcall.
//!
//! Every other command calls [`ensure`] for what it needs, so that a bare machine works without
//! this command.

mod apt;
mod cargo_tools;
mod libclang;
mod needs;
pub(crate) mod program;
pub(crate) mod rust;

use anyhow::{Result, bail};

pub(crate) use libclang::ensure as libclang;
pub(crate) use needs::Purpose;

/// Sees to everything that `purposes` need, installing what is missing.
///
/// # Errors
///
/// When something is missing that cannot be installed; the error names it and says what to do.
pub(crate) fn ensure(purposes: &[Purpose]) -> Result<()> {
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
    eprintln!("xtask: missing on this machine:");
    for need in &missing {
        eprintln!("xtask:   {} ({})", need.package, need.reason);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    apt::install(&packages)?;
    let still = needs::missing(purposes);
    if let Some(need) = still.first() {
        bail!(
            "{} was installed, but {} is still not there: {}",
            need.package,
            need.probe,
            need.reason
        );
    }
    Ok(())
}
