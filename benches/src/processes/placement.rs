//! On which cores a process may run.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The cores on which the processes of a measurement run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Wherever the scheduler puts them.
    Free,
    /// All on one core, the first that this process may use, so that nothing overlaps and a round
    /// trip is the sum of the work that it takes.
    OneCore,
}

impl Placement {
    /// A command that runs `program` there. `taskset` becomes the program, so that the process id
    /// of the one is that of the other.
    ///
    /// # Errors
    ///
    /// Returns an error if the cores of this process cannot be asked for.
    pub fn command(self, program: impl AsRef<OsStr>) -> Result<Command> {
        match self {
            Self::Free => Ok(Command::new(program)),
            Self::OneCore => {
                let mut command = Command::new("taskset");
                command.arg("--cpu-list").arg(first_core()?.to_string()).arg(program);
                Ok(command)
            }
        }
    }
}

fn first_core() -> Result<usize> {
    let cores = sched_getaffinity(Pid::from_raw(0)).context("asking for this process's cores")?;
    (0..CpuSet::count())
        .find(|&core| cores.is_set(core).unwrap_or(false))
        .context("this process has no core")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farcall_testkit::process::bounded::tool_output;

    use super::*;

    #[test]
    fn a_process_runs_where_it_is_placed() {
        let cores = |placement: Placement| {
            let mut command = placement.command("grep").unwrap();
            command.args(["Cpus_allowed_list", "/proc/self/status"]);
            let line = tool_output(&mut command, Duration::from_secs(10)).unwrap();
            line.split_whitespace().next_back().unwrap().to_owned()
        };
        assert_eq!(cores(Placement::OneCore), first_core().unwrap().to_string());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(own.contains(&format!("Cpus_allowed_list:\t{}", cores(Placement::Free))));
    }
}
