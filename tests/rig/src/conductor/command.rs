//! Programs that make faults and lift them, each within a bound on its time.

use std::process::{Command, Stdio};
use std::time::Duration;

use farcall_testkit::process::Group;
use farcall_testkit::process::bounded::Running;

use crate::RigError;

/// Maximum time of a program that only talks to the kernel. On an emulated processor of a busy host
/// one has taken more than 10 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program to its success and gives its output.
pub(crate) fn run(arguments: &[&str]) -> Result<String, RigError> {
    Started::new(arguments)?.wait(LIMIT)
}

/// A program that was started. Dropped, it is killed, which does not end one that waits in the
/// kernel.
#[derive(Debug)]
pub(crate) struct Started(Running);

impl Started {
    pub(crate) fn new(pieces: &[&str]) -> Result<Self, RigError> {
        let [program, arguments @ ..] = pieces else {
            return Err(RigError::Missing("program without a name".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self(Running::start_in(Group::Shared, &mut command)?))
    }

    /// Waits for its success, and gives its output.
    pub(crate) fn wait(self, limit: Duration) -> Result<String, RigError> {
        Ok(String::from_utf8_lossy(&self.0.output(limit)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failures_come_back() {
        assert_eq!(run(&["echo", "hello"]).unwrap(), "hello\n");
        let error = run(&["sh", "-c", "echo no >&2; exit 1"]).unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'echo no >&2; exit 1'` failed: exit status: 1: no");
        assert!(
            run(&["no-such-program"])
                .unwrap_err()
                .to_string()
                .contains("cannot start `no-such-program`")
        );
    }

    #[test]
    fn a_program_that_hangs_is_named() {
        let error = Started::new(&["sleep", "3600"]).unwrap().wait(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "`sleep 3600` hung: still running after 0 s, killed");
    }
}
