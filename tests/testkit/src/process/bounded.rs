//! Running a command within a bound on its time: it is killed when the bound expires, when the
//! value is dropped, or when this program is interrupted.

use std::io::{self, Read};
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::child::{Group, Owned, REAP_LIMIT};
use super::{ProcessError, interrupted};

pub use super::command_line::command_line;

/// The end of a bounded command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was still running at the bound and has been killed.
    Expired,
}

/// A started command. Dropping it kills it: with all that it has started, in a group of its own.
#[derive(Debug)]
pub struct Running {
    owned: Owned,
    /// The standard output, when the command asked for a pipe.
    pub stdout: Option<ChildStdout>,
    /// The standard error, when the command asked for a pipe.
    pub stderr: Option<ChildStderr>,
}

impl Running {
    /// Starts `command` without standard input, in a process group of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started; the error names it.
    pub fn start(command: &mut Command) -> Result<Self, ProcessError> {
        Self::start_in(Group::Own, command)
    }

    /// Starts a command like [`start`](Self::start), in a process group of choice.
    ///
    /// # Errors
    ///
    /// Returns an error that names the program if it cannot be started.
    pub fn start_in(group: Group, command: &mut Command) -> Result<Self, ProcessError> {
        let mut owned = Owned::spawn(command.stdin(Stdio::null()), group)?;
        let (stdout, stderr) = (owned.child.stdout.take(), owned.child.stderr.take());
        Ok(Self { owned, stdout, stderr })
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if this program is interrupted meanwhile, or the process does not even end
    /// when killed.
    pub fn wait(&mut self, limit: Duration) -> Result<CommandEnd, ProcessError> {
        let end = if let Some(status) = self.owned.wait(limit)? {
            CommandEnd::Exited(status)
        } else {
            self.owned.kill();
            if self.owned.wait(REAP_LIMIT)?.is_none() {
                return Err(ProcessError::Unkillable { line: self.owned.line.clone() });
            }
            CommandEnd::Expired
        };
        if interrupted() { Err(ProcessError::Interrupted) } else { Ok(end) }
    }

    /// Waits for success and returns the standard output, if that is a pipe. A standard error that
    /// is a pipe becomes part of the error.
    ///
    /// # Errors
    ///
    /// Returns an error if the command is not done within `limit`, or fails.
    pub fn output(mut self, limit: Duration) -> Result<Vec<u8>, ProcessError> {
        let began = Instant::now();
        let (stdout, stderr) = (read(self.stdout.take()), read(self.stderr.take()));
        let end = self.wait(limit)?;
        // Another process may hold the pipe.
        let bytes = |pipe: Receiver<io::Result<Vec<u8>>>| {
            let left = limit.saturating_sub(began.elapsed()).max(PIPE_LIMIT);
            let open = |_| ProcessError::OutputOpen { line: self.owned.line.clone() };
            pipe.recv_timeout(left).map_err(open)?.map_err(|error| ProcessError::Io {
                what: format!("reading the output of `{}`", self.owned.line),
                error,
            })
        };
        let line = self.owned.line.clone();
        match end {
            CommandEnd::Expired => Err(ProcessError::Expired { line, limit }),
            CommandEnd::Exited(status) if status.success() => bytes(stdout),
            CommandEnd::Exited(status) => {
                // What could be read is better than nothing.
                let errors = bytes(stderr).unwrap_or_default();
                let errors = String::from_utf8_lossy(&errors).trim().to_owned();
                Err(ProcessError::Failed { line, status, errors })
            }
        }
    }
}

/// Time for reading the rest of an ended process's pipe.
const PIPE_LIMIT: Duration = Duration::from_secs(1);

/// Reads a pipe on a thread of its own, so that the process never waits for room in it.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes);
        // The receiver is gone when the process has failed.
        let _ = send.send(read);
    });
    receive
}

/// Runs `command` with the output of this program, at most `limit`, and asks for success.
///
/// # Errors
///
/// Returns an error if it cannot be started, does not end in time, or fails; the error carries the
/// command line.
pub fn run(command: &mut Command, limit: Duration) -> Result<(), ProcessError> {
    Running::start(command)?.output(limit).map(drop)
}

/// Runs `command` as [`run`] does and returns its standard output.
///
/// # Errors
///
/// Returns the errors of [`run`], and one if the output is not UTF-8.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, ProcessError> {
    text(command_line(command), output_bytes(command, limit)?)
}

/// Runs `command` as [`run`] does and returns the bytes of its standard output.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub fn output_bytes(command: &mut Command, limit: Duration) -> Result<Vec<u8>, ProcessError> {
    Running::start(command.stdout(Stdio::piped()))?.output(limit)
}

/// Runs a tool to its end in this program's process group and returns its standard output.
///
/// # Errors
///
/// Returns the errors of [`output`], with what the tool wrote to its standard error.
pub fn tool_output(command: &mut Command, limit: Duration) -> Result<String, ProcessError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let bytes = Running::start_in(Group::Shared, command)?.output(limit)?;
    text(command_line(command), bytes)
}

/// Runs `command` and returns true if it succeeds within `limit`. Discards its output.
pub fn succeeds(command: &mut Command, limit: Duration) -> bool {
    run(command.stdout(Stdio::null()).stderr(Stdio::null()), limit).is_ok()
}

fn text(line: String, bytes: Vec<u8>) -> Result<String, ProcessError> {
    String::from_utf8(bytes).map_err(|_| ProcessError::NotText { line })
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

    #[test]
    fn a_tool_gives_its_output_or_its_errors() {
        let tool = |script, limit| tool_output(&mut shell(script), limit);
        assert_eq!(tool("echo one; echo two", AMPLE).unwrap(), "one\ntwo\n");
        let error = tool("echo broken >&2; exit 1", AMPLE).unwrap_err().to_string();
        assert!(error.ends_with("failed: exit status: 1: broken"), "{error}");
        let error = tool("exec sleep 1000", Duration::from_millis(10)).unwrap_err().to_string();
        assert!(error.contains("still running"), "{error}");
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
        assert_eq!(running.wait(Duration::from_millis(100)).unwrap(), CommandEnd::Expired);
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
