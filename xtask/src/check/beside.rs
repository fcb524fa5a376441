//! Steps that only compile, run beside those that mostly wait.
//!
//! A step in the virtual machine, or one with real processes on loopback, leaves a good part of two
//! processors idle. A child of this program, with the lowest priority, compiles meanwhile. Its
//! output appears in one piece when it is waited for.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use farcall_testkit::process::bounded::{CommandEnd, Running};
use tempfile::NamedTempFile;

use super::step::CheckStep;
use super::summary::StepOutcome;
use crate::batch;
use crate::kernel::Series;

/// Maximum time from the start of the child to its end. Each of its steps has a limit of its own.
const LIMIT: Duration = Duration::from_secs(3600);

/// The running child.
#[derive(Debug)]
pub(super) struct Beside {
    running: Running,
    output: NamedTempFile,
    step_count: usize,
    started: Instant,
}

/// Splits `steps` into those that run in order and those that run beside them. Where none of them
/// waits, all run in order.
pub(super) fn split(steps: &[CheckStep]) -> (Vec<CheckStep>, Vec<CheckStep>) {
    if !steps.iter().any(|step| step.mostly_waits()) {
        return (steps.to_vec(), Vec::new());
    }
    steps.iter().partition(|step| !step.only_compiles())
}

impl Beside {
    /// Starts a child that runs `steps`.
    ///
    /// # Errors
    ///
    /// Returns an error if the child does not start.
    pub(super) fn start(steps: &[CheckStep], kernel: Series) -> Result<Self> {
        let output = NamedTempFile::with_prefix("farcall-steps-")?;
        let mut command = Command::new("nice");
        // A step that builds this package replaces the program's file: the path by which it was
        // started is gone then, and this one is not.
        let program = format!("/proc/{}/exe", std::process::id());
        command.args(["-n", "19", &program, "test"]);
        let kernel = kernel.to_possible_value().context("a kernel has a name")?;
        command.args(["--kernel", kernel.get_name()]);
        for step in steps {
            command.arg("--only").arg(step.to_string());
        }
        // Handles of one open file share its position, so the two streams do not overwrite each
        // other.
        command.stdout(output.as_file().try_clone()?).stderr(output.as_file().try_clone()?);
        println!("=== beside the next steps: {}", names(steps));
        let running = Running::start(&mut command)?;
        Ok(Self { running, output, step_count: steps.len(), started: Instant::now() })
    }

    /// Waits for the child and prints its output.
    ///
    /// # Errors
    ///
    /// Returns an error if a step of the child fails, or if this program is interrupted.
    pub(super) fn finish(mut self) -> Result<StepOutcome> {
        let left = LIMIT.saturating_sub(self.started.elapsed());
        let end = self.running.wait(left);
        let seconds = self.started.elapsed().as_secs();
        let output = std::fs::read(self.output.path())?;
        println!("{}", String::from_utf8_lossy(&output));
        match end? {
            CommandEnd::Exited(status) if status.success() => {
                let count = self.step_count;
                Ok(StepOutcome::Passed(Some(format!("{count} steps in {seconds} s, above"))))
            }
            CommandEnd::Exited(_) => {
                let end = batch::end_of(&String::from_utf8_lossy(&output));
                bail!("a step beside the others failed, see above\n{end}")
            }
            CommandEnd::Expired => bail!("still running after {} s", LIMIT.as_secs()),
        }
    }
}

fn names(steps: &[CheckStep]) -> String {
    steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_beside_others_only_while_one_waits() {
        let steps = [CheckStep::Clippy, CheckStep::Sim, CheckStep::Peers];
        assert_eq!(split(&steps), (steps.to_vec(), Vec::new()));
        let (in_order, beside) = split(&[CheckStep::Clippy, CheckStep::Sim, CheckStep::VmSuite]);
        assert_eq!(
            (in_order, beside),
            (vec![CheckStep::Clippy, CheckStep::VmSuite], vec![CheckStep::Sim])
        );
    }

    #[test]
    fn a_step_waits_or_compiles() {
        for step in CheckStep::value_variants() {
            assert!(!(step.mostly_waits() && step.only_compiles()), "{step}");
        }
    }
}
