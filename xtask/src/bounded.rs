//! Running a command within a bound on its time: its whole process group is killed when the bound
//! expires, when the value is dropped, or when this program is interrupted. Nothing in xtask starts
//! a process in another way.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::interrupt::{self, Group};

/// How long a killed process may take to be reaped. A process in an uninterruptible system call can
/// outlive its kill.
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// How a bounded command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was still running at the bound and has been killed, with all that it had started.
    Expired,
}

/// A started command, alone in its process group.
#[derive(Debug)]
pub(crate) struct Running {
    group: Group,
    exit: Receiver<io::Result<ExitStatus>>,
    /// The standard output, when the command asked for a pipe.
    pub(crate) stdout: Option<ChildStdout>,
    /// The standard error, when the command asked for a pipe.
    pub(crate) stderr: Option<ChildStderr>,
    line: String,
}

impl Running {
    /// Starts `command` without standard input.
    ///
    /// # Errors
    ///
    /// When the program cannot be started; the error names it.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let line = command_line(command);
        let mut child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))?;
        let leader = i32::try_from(child.id()).context("a process id beyond the range of pid_t")?;
        let group = Group::new(leader);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (send, exit) = mpsc::channel();
        std::thread::spawn(move || {
            // The receiver is gone when the wait was given up: then nobody asks for the status.
            let _ = send.send(child.wait());
        });
        Ok(Self { group, exit, stdout, stderr, line })
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Errors
    ///
    /// When this program is interrupted meanwhile, or the process does not even end when killed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<End> {
        let end = match self.exit.recv_timeout(limit) {
            Ok(status) => {
                End::Exited(status.with_context(|| format!("waiting for `{}`", self.line))?)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.group.kill();
                if self.exit.recv_timeout(REAP_LIMIT).is_err() {
                    bail!("`{}` does not end although it was killed", self.line);
                }
                End::Expired
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the wait for `{}` was lost", self.line),
        };
        if interrupt::requested() {
            bail!("interrupted");
        }
        Ok(end)
    }
}

/// Runs `command` with the output of this program, at most `limit`, and asks for success.
///
/// # Errors
///
/// When it cannot be started, does not end in time, or fails; the error carries the command line.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let mut running = Running::start(command)?;
    let end = running.wait(limit)?;
    success(&running.line, end, limit)
}

/// Runs `command` as [`run`] does and returns its standard output.
///
/// # Errors
///
/// As [`run`], and when the output is not UTF-8.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let bytes = output_bytes(command, limit)?;
    let line = command_line(command);
    String::from_utf8(bytes).map_err(|_| anyhow!("`{line}` printed what is not UTF-8"))
}

/// Runs `command` as [`run`] does and returns the bytes of its standard output.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn output_bytes(command: &mut Command, limit: Duration) -> Result<Vec<u8>> {
    let mut running = Running::start(command.stdout(Stdio::piped()))?;
    let pipe = running.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
    });
    let end = running.wait(limit)?;
    success(&running.line, end, limit)?;
    let bytes = reader.join().map_err(|_| anyhow!("reading the output panicked"))?;
    bytes.with_context(|| format!("reading the output of `{}`", running.line))
}

/// Whether `command` runs to success within `limit`. Its output is thrown away.
pub(crate) fn succeeds(command: &mut Command, limit: Duration) -> bool {
    run(command.stdout(Stdio::null()).stderr(Stdio::null()), limit).is_ok()
}

fn success(line: &str, end: End, limit: Duration) -> Result<()> {
    match end {
        End::Exited(status) if status.success() => Ok(()),
        End::Exited(status) => bail!("`{line}` failed: {status}"),
        End::Expired => {
            bail!("`{line}` hung: still running after {} s, killed", limit.as_secs())
        }
    }
}

/// The command as one would type it, for messages only: quoting is for the eye.
pub(crate) fn command_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}={} ", name.to_string_lossy(), quoted(value));
        }
    }
    line.push_str(&quoted(command.get_program()));
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{word}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn success_and_output_come_back() {
        assert_eq!(output(&mut shell("echo hello"), AMPLE).unwrap(), "hello\n");
        run(&mut shell("exit 0"), AMPLE).unwrap();
    }

    #[test]
    fn a_failure_names_the_command_and_the_status() {
        let error = run(&mut shell("exit 7"), AMPLE).unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'exit 7'` failed: exit status: 7");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program"), AMPLE).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program`");
    }

    /// Reads to the end of the pipe, which comes when the last process that holds it has ended.
    fn wait_for_end_of(mut pipe: ChildStdout) {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(pipe.read_to_end(&mut Vec::new())));
        assert_eq!(receive.recv_timeout(AMPLE).unwrap().unwrap(), 0);
    }

    #[test]
    fn a_hanging_command_is_killed_with_its_children() {
        // The grandchild holds the pipe too.
        let mut command = shell("sleep 3600 & sleep 3600");
        let mut running = Running::start(command.stdout(Stdio::piped())).unwrap();
        assert_eq!(running.wait(Duration::from_millis(100)).unwrap(), End::Expired);
        wait_for_end_of(running.stdout.take().unwrap());
    }

    #[test]
    fn dropping_a_running_command_kills_it() {
        let mut running = Running::start(shell("sleep 3600").stdout(Stdio::piped())).unwrap();
        let pipe = running.stdout.take().unwrap();
        drop(running);
        wait_for_end_of(pipe);
    }
}
