//! The folder through which host and guest talk: the command goes in, the exit status comes out.
//!
//! Words are kept apart by NUL bytes, so that nothing needs quoting. The command's output does not
//! go this way.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::options::VmOptions;

const GUEST_SCRIPT: &str = include_str!("guest.sh");

/// Path of the share in the guest.
pub(crate) const SHARE_IN_GUEST: &str = "/guest";

/// One guest's folder. It is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Exchange {
    folder: TempDir,
}

impl Exchange {
    /// Writes what the guest `host` needs to run the command of `options`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be written, or a variable to be passed is not set.
    pub(super) fn new(options: &VmOptions, host: u8) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("farcall-vm-").tempdir()?;
        let directory = std::env::current_dir().context("reading the current folder")?;
        let exchange = Self { folder };
        exchange.write("guest.sh", GUEST_SCRIPT.as_bytes())?;
        exchange.write("command", &terminated(&options.command))?;
        exchange.write("environment", &terminated(&environment(options, host)?))?;
        exchange.write("directory", directory.as_os_str().as_bytes())?;
        exchange.write("host", host.to_string().as_bytes())?;
        exchange.write("hosts", options.hosts.to_string().as_bytes())?;
        Ok(exchange)
    }

    /// The folder, for qemu to share with the guest.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The file that takes the guest's console.
    pub(super) fn console(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    /// The file that the guest writes before it starts the command.
    pub(super) fn started(&self) -> PathBuf {
        self.folder.path().join("started")
    }

    /// The exit status that the command left, if it came so far.
    pub(super) fn status(&self) -> Option<u8> {
        let text = fs::read_to_string(self.folder.path().join("status")).ok()?;
        text.trim().parse().ok()
    }

    /// The last lines that the guest's console printed.
    pub(super) fn console_end(&self) -> String {
        const LINES: usize = 20;
        let bytes = fs::read(self.console()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let file = self.folder.path().join(name);
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))
    }
}

fn environment(options: &VmOptions, host: u8) -> Result<Vec<OsString>> {
    let mut variables = vec![
        assignment("FARCALL_VM_SHARE", OsStr::new(SHARE_IN_GUEST)),
        assignment("FARCALL_VM_HOST", OsStr::new(&host.to_string())),
        // Tests that pass without a device where there is none must fail here.
        assignment("FARCALL_RDMA", OsStr::new("required")),
    ];
    for name in ["PATH", "HOME"].into_iter().chain(options.env.iter().map(String::as_str)) {
        match std::env::var_os(name) {
            Some(value) => variables.push(assignment(name, &value)),
            None => bail!("the guest needs the environment variable {name}, which is not set"),
        }
    }
    Ok(variables)
}

fn assignment(name: &str, value: &OsStr) -> OsString {
    let mut variable = OsString::from(name);
    variable.push("=");
    variable.push(value);
    variable
}

fn terminated(pieces: &[OsString]) -> Vec<u8> {
    pieces.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kernel::Series;

    fn options(command: &[&str]) -> VmOptions {
        let command = command.iter().map(OsString::from).collect();
        VmOptions::for_command(command, Series::V6_1, Duration::from_secs(60))
    }

    #[test]
    fn words_with_any_character_stay_apart() {
        let exchange = Exchange::new(&options(&["echo", "a b", "", "'\n"]), 0).unwrap();
        let command = fs::read(exchange.path().join("command")).unwrap();
        assert_eq!(command, b"echo\0a b\0\0'\n\0");
    }

    #[test]
    fn a_variable_that_is_not_set_is_refused_by_name() {
        let mut options = options(&["true"]);
        options.env.push("FARCALL_NO_SUCH_VARIABLE".into());
        let error = Exchange::new(&options, 0).unwrap_err();
        assert!(error.to_string().contains("FARCALL_NO_SUCH_VARIABLE"), "{error}");
    }

    #[test]
    fn a_status_is_read_only_when_it_is_whole() {
        let exchange = Exchange::new(&options(&["true"]), 0).unwrap();
        assert_eq!(exchange.status(), None);
        exchange.write("status", b"").unwrap();
        assert_eq!(exchange.status(), None);
        exchange.write("status", b"42\n").unwrap();
        assert_eq!(exchange.status(), Some(42));
    }

    #[test]
    fn the_console_is_shown_from_its_end() {
        let exchange = Exchange::new(&options(&["true"]), 0).unwrap();
        let lines: Vec<String> = (0..50).map(|line| format!("line {line}\r\n")).collect();
        fs::write(exchange.console(), lines.concat()).unwrap();
        let end = exchange.console_end();
        assert!(end.starts_with("line 30\n") && end.ends_with("line 49"), "{end}");
    }
}
