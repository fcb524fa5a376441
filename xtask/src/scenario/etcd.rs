//! etcd for the scenarios: the machine's program, or Debian's package unpacked into the target
//! folder. Installed, the package would start an etcd of its own on the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use crate::program;

/// Debian's package, of about 10 MB.
const PACKAGE: &str = "etcd-server";

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// etcd's program; `None` where there is none, which is said.
pub(super) fn program() -> Option<PathBuf> {
    if let Some(program) = program::find("etcd") {
        return Some(program);
    }
    match unpacked() {
        Ok(program) => Some(program),
        Err(error) => {
            eprintln!("xtask: no etcd: {error:#}");
            None
        }
    }
}

fn unpacked() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(PathBuf::from(target).join("etcd"))?;
    let program = folder.join("usr/bin/etcd");
    if !program.exists() {
        program::find("apt-get").context("only Debian's package is supported here")?;
        eprintln!("xtask: downloading {PACKAGE} into {}", folder.display());
        unpack(&folder)?;
    }
    Ok(program)
}

fn unpack(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(folder)?;
    let mut download = Command::new("apt-get");
    // apt's own user may not write here.
    download.args(["-o", "APT::Sandbox::User=root", "download", PACKAGE]);
    bounded::run(download.current_dir(work.path()), DOWNLOAD_LIMIT)?;
    let package = std::fs::read_dir(work.path())?.flatten().next();
    let package = package.context("apt-get downloaded no file")?.path();
    let mut dpkg = program::command("dpkg");
    Ok(bounded::run(dpkg.arg("-x").arg(package).arg(folder), UNPACK_LIMIT)?)
}
