//! A child that is killed and waited for when its value is dropped.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::ProcessError;
use super::command_line::command_line;
use super::registry::{Registered, Target};

/// Time in which a killed process must be reaped. A process in an uninterruptible system call can
/// outlive its kill.
pub(super) const REAP_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at whether a child has ended, first and at most: there is no wait for that
/// with a bound.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(10);

/// The process group that a child runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// One of its own: a kill reaches all that the child has started, and a terminal's Ctrl-C
    /// reaches none of it.
    Own,
    /// This program's: a kill of this program's group ends the child too.
    Shared,
}

/// A running child.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) child: Child,
    pub(super) line: String,
    registered: Registered,
}

impl Owned {
    pub(super) fn spawn(command: &mut Command, group: Group) -> Result<Self, ProcessError> {
        let line = command_line(command);
        if group == Group::Own {
            command.process_group(0);
        }
        let child =
            command.spawn().map_err(|error| ProcessError::Start { line: line.clone(), error })?;
        let id = i32::try_from(child.id()).expect("Linux has no process id beyond pid_t");
        let target = match group {
            Group::Own => Target::Group(id),
            Group::Shared => Target::Process(id),
        };
        Ok(Self { child, line, registered: Registered::new(target) })
    }

    pub(super) fn kill(&mut self) {
        // Safe against a reused id: only `try_wait` gives it back, and knows that it has.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.registered.kill();
        }
    }

    /// Waits for the end of the process. Returns `None` if it still runs after `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, ProcessError> {
        let (began, mut interval) = (Instant::now(), POLL_INTERVAL);
        loop {
            let status = self.child.try_wait().map_err(|error| ProcessError::Io {
                what: format!("waiting for `{}`", self.line),
                error,
            })?;
            let left = limit.saturating_sub(began.elapsed());
            if status.is_some() || left.is_zero() {
                return Ok(status);
            }
            std::thread::sleep(interval.min(left));
            interval = (interval * 2).min(POLL_INTERVAL_MAX);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.kill();
        // One that does not even end now is left to the kernel.
        let _ = self.wait(REAP_LIMIT);
    }
}
