//! Booting the guests, waiting for them within the bound, and saying how it ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded::{CommandEnd, Running};
use tempfile::TempDir;

use super::exchange::Exchange;
use super::options::VmOptions;
use super::qemu::{self, Files, Link};
use super::{initramfs, stream};
use crate::kernel::Kernel;
use crate::phase::ProgressPhase;
use crate::setup::{self, Purpose};

/// The usual time of a boot, emulated on two cores.
const BOOT_USUALLY: Duration = Duration::from_secs(20);

/// The end of a run in the virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VmEnd {
    /// The command ended with this status.
    Exited(u8),
    /// It was still running at the bound, and the machine was killed.
    Expired,
    /// The machine ended without a status: it did not boot, lost its devices, or crashed.
    NoStatus,
}

impl VmEnd {
    /// The exit status that tells it to a shell, in the manner of `timeout`.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Expired => 124,
            Self::NoStatus => 125,
        }
    }

    /// The end of two hosts together: the first one's, unless it succeeded.
    fn and(self, second: Self) -> Self {
        if self == Self::Exited(0) { second } else { self }
    }
}

/// Runs the command of `options` in the virtual machine, with its output on this program's.
///
/// # Errors
///
/// Returns an error if something that the machine needs is missing, or qemu cannot be started.
pub(crate) fn run(options: &VmOptions) -> Result<VmEnd> {
    setup::ensure(&[Purpose::Vm])?;
    let kernel = Kernel::obtain(options.kernel)?;
    let initramfs = initramfs::for_kernel(&kernel)?;
    let share = Share::new(options.share.as_deref())?;
    let link = if options.hosts == 2 { Some(Link::pick()?) } else { None };
    let deadline = Instant::now() + options.limit();
    let boot = Boot { options, image: kernel.image(), initramfs, share: share.path(), link };
    let guests = (0..options.hosts).map(|host| boot.start(host)).collect::<Result<Vec<_>>>()?;
    let mut end = VmEnd::Exited(0);
    for guest in guests {
        end = end.and(guest.wait(deadline)?);
    }
    Ok(end)
}

/// The parts that all guests of a run share.
struct Boot<'a> {
    options: &'a VmOptions,
    image: PathBuf,
    initramfs: PathBuf,
    share: &'a Path,
    link: Option<Link>,
}

impl Boot<'_> {
    fn start(&self, host: u8) -> Result<Guest> {
        let exchange = Exchange::new(self.options, host)?;
        let files = Files {
            kernel: &self.image,
            initramfs: &self.initramfs,
            exchange: exchange.path(),
            console: &exchange.console(),
            share: self.share,
        };
        let mut command = qemu::command(self.options, host, &files, self.link)?;
        let mut qemu = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let mark = self.link.map(|_| format!("{host}| "));
        let stdout = qemu.stdout.take().context("qemu has no standard output")?;
        let stderr = qemu.stderr.take().context("qemu has no standard error")?;
        let streams = [
            stream::spawn(stdout, io::stdout(), mark.clone()),
            stream::spawn(stderr, io::stderr(), mark),
        ];
        let started = exchange.started();
        let boot = ProgressPhase::start("booting the virtual machine", BOOT_USUALLY, move || {
            started.exists()
        });
        let limit = self.options.limit().as_secs();
        Ok(Guest { host, exchange, qemu, streams, limit, _boot: boot })
    }
}

/// A running guest. Dropping it kills it.
struct Guest {
    host: u8,
    exchange: Exchange,
    qemu: Running,
    streams: [JoinHandle<io::Result<()>>; 2],
    limit: u64,
    _boot: ProgressPhase,
}

impl Guest {
    fn wait(mut self, deadline: Instant) -> Result<VmEnd> {
        let end = self.qemu.wait(deadline.saturating_duration_since(Instant::now()))?;
        for stream in self.streams {
            // A closed standard output is the reader's choice and no failure of the command.
            let _ = stream.join();
        }
        let complaint = match (end, self.exchange.status()) {
            (CommandEnd::Exited(_), Some(status)) => return Ok(VmEnd::Exited(status)),
            (CommandEnd::Expired, _) => {
                format!("was still running after {} s and has been killed", self.limit)
            }
            (CommandEnd::Exited(qemu), None) => {
                format!("ended without a status of the command (qemu: {qemu})")
            }
        };
        let place =
            if self.exchange.started().exists() { "in the command" } else { "while booting" };
        eprintln!("xtask: guest {} {complaint}, {place}; the end of its console:", self.host);
        eprintln!("{}", self.exchange.console_end());
        Ok(if end == CommandEnd::Expired { VmEnd::Expired } else { VmEnd::NoStatus })
    }
}

/// The folder that the command may write to.
enum Share {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Share {
    fn new(wanted: Option<&Path>) -> Result<Self> {
        let Some(folder) = wanted else {
            return Ok(Self::Temporary(
                tempfile::Builder::new().prefix("farcall-share-").tempdir()?,
            ));
        };
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        eprintln!("xtask: the command's share is in {}", folder.display());
        Ok(Self::Kept(folder))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(folder) => folder,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_two_hosts_counts() {
        let ok = VmEnd::Exited(0);
        assert_eq!(ok.and(VmEnd::Exited(3)), VmEnd::Exited(3));
        assert_eq!(VmEnd::Exited(2).and(VmEnd::Exited(3)), VmEnd::Exited(2));
        assert_eq!(VmEnd::Expired.and(ok).exit_code(), 124);
        assert_eq!(ok.and(VmEnd::NoStatus).exit_code(), 125);
        assert_eq!(ok.and(ok), ok);
    }
}
