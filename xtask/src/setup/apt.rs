//! Installing Debian packages, where that is possible.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use farcall_testkit::process::bounded;

use crate::program;

const UPDATE_LIMIT: Duration = Duration::from_secs(300);
/// About 150 MB of packages at 1 MB/s, and as long again to unpack them.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Installs `packages` with `apt-get`, as root or through a `sudo` that asks for no password.
///
/// # Errors
///
/// Returns an error if there is no privilege, with the command to run by hand; or if `apt-get`
/// fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    let Some(privileged) = Privilege::find() else {
        bail!(
            "xtask may not install packages here: run \
             `apt-get install --no-install-recommends {names}` as root, then the command again"
        );
    };
    if !has_package_lists() {
        bounded::run(&mut privileged.apt_get(&["update"]), UPDATE_LIMIT)?;
    }
    eprintln!("xtask: installing {names}");
    let arguments = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if let Err(error) = bounded::run(&mut privileged.apt_get(&arguments), INSTALL_LIMIT) {
        // Package lists that have aged name versions that the archive no longer has.
        eprintln!("xtask: {error}; trying again with fresh package lists");
        bounded::run(&mut privileged.apt_get(&["update"]), UPDATE_LIMIT)?;
        bounded::run(&mut privileged.apt_get(&arguments), INSTALL_LIMIT)?;
    }
    Ok(())
}

/// Returns true if this machine has `apt-get` and this process may run it.
pub(super) fn may_install() -> bool {
    program::find("apt-get").is_some() && Privilege::find().is_some()
}

/// Returns true if the archive has `package`, as far as this machine knows.
pub(crate) fn knows(package: &str) -> bool {
    bounded::output(Command::new("apt-cache").args(["policy", package]), PROBE_LIMIT)
        .is_ok_and(|policy| policy.contains("Candidate:") && !policy.contains("Candidate: (none)"))
}

fn has_package_lists() -> bool {
    std::fs::read_dir("/var/lib/apt/lists")
        .is_ok_and(|entries| entries.flatten().any(|entry| is_package_list(&entry.path())))
}

fn is_package_list(file: &Path) -> bool {
    // Lists may be kept compressed.
    file.file_name().is_some_and(|name| name.to_string_lossy().contains("_Packages"))
}

/// A way for this process to act as root.
enum Privilege {
    Root,
    Sudo,
}

impl Privilege {
    fn find() -> Option<Self> {
        if nix::unistd::geteuid().is_root() {
            return Some(Self::Root);
        }
        let sudo = bounded::succeeds(Command::new("sudo").args(["-n", "true"]), PROBE_LIMIT);
        sudo.then_some(Self::Sudo)
    }

    fn apt_get(&self, arguments: &[&str]) -> Command {
        let mut command = match self {
            Self::Root => Command::new("env"),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.args(["-n", "env"]);
                command
            }
        };
        // Through `env`, because sudo clears the environment.
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "Dpkg::Use-Pty=0"]);
        command.args(arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_lists_are_told_from_other_files() {
        assert!(is_package_list(Path::new("host_debian_dists_x_main_binary-amd64_Packages")));
        assert!(is_package_list(Path::new("host_debian_dists_x_main_binary-amd64_Packages.lz4")));
        assert!(!is_package_list(Path::new("partial")));
    }
}
