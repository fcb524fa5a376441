//! The place for programs that need an RDMA device: this host if it has one, otherwise the virtual
//! machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::batch::{self, Job};
use crate::kernel::Series;
use crate::rdma_device::{self, RdmaDevice};
use crate::setup::Purpose;
use crate::vm::{self, VmEnd, VmOptions};

/// The variable by which tests know that a device must be there. Without it they pass where there
/// is none.
pub const REQUIRED_VARIABLE: &str = "FARCALL_RDMA";

/// A boot takes 5 to 13 s, and a busy machine may be ten times slower.
pub const BOOT_LIMIT: Duration = Duration::from_secs(130);

/// Variables that change what programs print.
const PASSED_ON: [&str; 2] = ["RUST_BACKTRACE", "RUST_LOG"];

/// A place with RDMA devices.
#[derive(Debug)]
pub enum RdmaPlace {
    /// This host.
    Host(RdmaDevice),
    /// The virtual machine with a kernel of this series.
    Vm(Series),
}

impl RdmaPlace {
    /// This host when it has a device, otherwise the virtual machine.
    pub fn find(kernel: Series) -> Self {
        rdma_device::find().map_or(Self::Vm(kernel), Self::Host)
    }

    /// Says where programs will run.
    pub fn announce(&self) {
        match self {
            Self::Host(RdmaDevice { name, port, address }) => {
                eprintln!("xtask: using this host's RDMA device {name}, port {port} ({address})");
            }
            Self::Vm(kernel) => eprintln!(
                "xtask: no RDMA device on this host: using the Soft-RoCE VM (kernel {kernel})"
            ),
        }
    }

    /// Returns what must be set up before [`run`](Self::run).
    pub fn purposes(&self) -> &'static [Purpose] {
        match self {
            Self::Host(_) => &[],
            Self::Vm(_) => &[Purpose::Vm],
        }
    }

    /// The addresses of two devices, or twice that of the only one.
    pub fn addresses(&self) -> [String; 2] {
        match self {
            Self::Host(device) => [device.address.to_string(), device.address.to_string()],
            Self::Vm(_) => ["10.0.0.1".into(), "10.0.1.1".into()],
        }
    }

    /// Runs `jobs` there; in the virtual machine, one boot serves all.
    ///
    /// # Errors
    ///
    /// Returns an error if a job fails or hangs, or the virtual machine cannot be started.
    pub fn run(&self, jobs: &[Job]) -> Result<()> {
        self.run_with(jobs, None)
    }

    /// Runs `jobs` as [`run`](Self::run) does, with a folder that they can write to.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`run`](Self::run).
    pub fn run_sharing(&self, jobs: &[Job], folder: &Path) -> Result<()> {
        self.run_with(jobs, Some(folder))
    }

    /// Returns the path at which the jobs of [`run_sharing`](Self::run_sharing) see that folder.
    pub fn share_as_seen(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Host(_) => folder.to_owned(),
            Self::Vm(_) => vm::SHARE_IN_GUEST.into(),
        }
    }

    fn run_with(&self, jobs: &[Job], share: Option<&Path>) -> Result<()> {
        let Self::Vm(kernel) = self else { return batch::run(jobs) };
        let folder = tempfile::Builder::new().prefix("farcall-batch-").tempdir()?;
        let command = batch::write(jobs, &folder.path().join("jobs.json"))?;
        let mut options = VmOptions::for_command(command, *kernel, BOOT_LIMIT + batch::limit(jobs));
        let is_set = |name: &&str| std::env::var_os(name).is_some();
        options.share = share.map(Path::to_owned);
        options.env = PASSED_ON.into_iter().filter(is_set).map(str::to_owned).collect();
        match vm::run(&options)? {
            VmEnd::Exited(0) => Ok(()),
            VmEnd::Exited(_) => bail!("a program failed in the virtual machine, see above"),
            VmEnd::Expired => bail!("the virtual machine hung, see above"),
            VmEnd::NoStatus => bail!("the virtual machine failed, see above"),
        }
    }
}
