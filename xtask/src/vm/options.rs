//! Arguments of `cargo xtask vm`: the virtual machine to run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::kernel::Series;

/// Arguments of `cargo xtask vm`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct VmOptions {
    /// One host with two RDMA devices (10.0.0.1 and 10.0.1.1), or two hosts with one each (10.0.2.1
    /// and 10.0.2.2).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) hosts: u8,
    /// Processors of each host. One makes programs that spin wait for the scheduler's tick.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) cpus: u16,
    /// Memory of each host, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    pub(crate) memory: u32,
    /// After how many seconds, boot included, everything is killed and the exit status is 124.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// The guest's kernel.
    #[arg(long, value_enum, default_value_t = Series::V6_1)]
    pub(crate) kernel: Series,
    /// Execution of the guest's instructions. Emulation is the default because it works everywhere;
    /// a `/dev/kvm` that exists may still not work.
    #[arg(long, value_enum, default_value_t = Acceleration::Tcg)]
    pub(crate) accel: Acceleration,
    /// Let time count instructions, on one processor: slow, but figures repeat.
    #[arg(long)]
    pub(crate) icount: bool,
    /// A variable of this environment that the command sees too. May be repeated. PATH and HOME
    /// always are.
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// A folder of this host that the command can write to, as the folder that FARCALL_VM_SHARE
    /// names. Without it, that folder is removed at the end.
    #[arg(long, value_name = "DIR")]
    pub(crate) share: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Execution of the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Acceleration {
    /// Emulated.
    Tcg,
    /// By the host's processor.
    Kvm,
}

impl VmOptions {
    /// One host with the defaults of the command line, running `command` for at most `limit`.
    pub(crate) fn for_command(command: Vec<OsString>, kernel: Series, limit: Duration) -> Self {
        Self {
            hosts: 1,
            cpus: 2,
            memory: 3072,
            timeout: limit.as_secs(),
            kernel,
            accel: Acceleration::Tcg,
            icount: false,
            env: Vec::new(),
            share: None,
            command,
        }
    }

    /// The bound on the whole run.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
