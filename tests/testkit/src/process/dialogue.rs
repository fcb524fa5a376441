//! A child that answers lines with lines.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{Group, Owned};
use super::{ProcessError, ProcessLog};

/// Time in which a process must end after it has closed its output.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A process that answers lines with lines, in this program's process group. Its standard error is
/// that of this process unless its command says otherwise. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    owned: Owned,
    stdin: ChildStdin,
    lines: Receiver<io::Result<String>>,
}

impl Process {
    /// Starts `command`; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, ProcessError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut owned = Owned::spawn(command, Group::Shared)?;
        let stdin = owned.child.stdin.take().expect("the input was asked for as a pipe");
        let stdout = owned.child.stdout.take().expect("the output was asked for as a pipe");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Ends with the output, or with the value that receives the lines.
            BufReader::new(stdout).lines().try_for_each(|line| send.send(line).ok());
        });
        Ok(Self { name: name.to_owned(), owned, stdin, lines })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.owned.child.id()
    }

    /// Returns the process's log from now on. `None` if the command asked for no pipe, or at the
    /// second call.
    pub fn log(&mut self) -> Option<ProcessLog> {
        self.owned.child.stderr.take().map(ProcessLog::of)
    }

    /// The next line of its output.
    ///
    /// # Errors
    ///
    /// Returns an error if none comes within `limit`, or the output ends.
    pub fn line(&mut self, limit: Duration) -> Result<String, ProcessError> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => line.map_err(|error| self.io("reading the output of", error)),
            Err(RecvTimeoutError::Timeout) => Err(self.hung("an answer", limit)),
            Err(RecvTimeoutError::Disconnected) => {
                // It has closed its output, so it ends now, or never by itself.
                let end = self.wait(END_LIMIT);
                let end = end.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(ProcessError::Ended { name: self.name.clone(), end })
            }
        }
    }

    /// Sends one line.
    ///
    /// # Errors
    ///
    /// Returns an error if the process takes no more of them.
    pub fn send(&mut self, line: &str) -> Result<(), ProcessError> {
        let sent = self.stdin.write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| self.io("sending a line to", error))
    }

    /// Sends one line and reads the next.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`send`](Self::send) and [`line`](Self::line).
    pub fn ask(&mut self, line: &str, limit: Duration) -> Result<String, ProcessError> {
        self.send(line)?;
        self.line(limit)
    }

    /// Sends `request` as one line of JSON and reads the answer, which is one too.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has ended, does not answer within `limit`, or answers
    /// something else.
    ///
    /// # Panics
    ///
    /// Panics if `request` cannot be written as JSON.
    pub fn request<R: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        limit: Duration,
    ) -> Result<R, ProcessError> {
        self.send(&serde_json::to_string(request).expect("a request can be written as JSON"))?;
        self.answer(limit)
    }

    /// Reads a line of JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if none comes within `limit`, or it is something else.
    pub fn answer<R: DeserializeOwned>(&mut self, limit: Duration) -> Result<R, ProcessError> {
        let line = self.line(limit)?;
        serde_json::from_str(&line).map_err(|error| {
            let name = self.name.clone();
            ProcessError::Misunderstood { name, line, error }
        })
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be sent one.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let id = i32::try_from(self.id()).expect("Linux has no process id beyond pid_t");
        kill(Pid::from_raw(id), signal).map_err(|error| self.io("signalling", error.into()))
    }

    /// Kills it with SIGKILL, in the middle of its work, and waits for its end.
    ///
    /// # Errors
    ///
    /// Returns an error if it has ended before, or does not end within `limit`.
    pub fn kill(mut self, limit: Duration) -> Result<(), ProcessError> {
        if let Some(status) = self.owned.wait(Duration::ZERO)? {
            return Err(ProcessError::Ended { name: self.name.clone(), end: status.to_string() });
        }
        self.owned.kill();
        self.wait(limit).map(drop)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// Returns an error if it is still there after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        self.owned.wait(limit)?.ok_or_else(|| self.hung("the end", limit))
    }

    fn hung(&self, what: &str, limit: Duration) -> ProcessError {
        ProcessError::Hung { what: format!("{what} of the {}", self.name), limit }
    }

    fn io(&self, what: &str, error: io::Error) -> ProcessError {
        ProcessError::Io { what: format!("{what} the {}", self.name), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_request_is_answered_with_a_line() {
        let mut process = Process::start("echo", &mut Command::new("cat")).unwrap();
        let answer: Vec<u32> = process.request(&[1, 2, 3], LIMIT).unwrap();
        assert_eq!(answer, [1, 2, 3]);
        assert_eq!(process.ask("hello", LIMIT).unwrap(), "hello");
    }

    #[test]
    fn silence_is_bounded_and_named() {
        let mut process = Process::start("mute", &mut Command::new("cat")).unwrap();
        let error = process.line(Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.to_string(), "an answer of the mute did not happen within 0.01 s");
    }

    #[test]
    fn an_end_without_an_answer_is_told_with_its_status() {
        let mut process = Process::start("short", &mut shell("exit 3")).unwrap();
        let error = process.line(LIMIT).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_process_does_not_outlive_its_value() {
        let process = Process::start("long", &mut shell("exec sleep 1000")).unwrap();
        let folder = format!("/proc/{}", process.id());
        assert!(std::path::Path::new(&folder).exists());
        drop(process);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_kill_finds_a_process_that_runs_and_no_other() {
        let process = Process::start("long", &mut Command::new("cat")).unwrap();
        process.kill(LIMIT).unwrap();
        let mut ended = Process::start("short", &mut shell("exit 3")).unwrap();
        ended.wait(LIMIT).unwrap();
        let error = ended.kill(LIMIT).unwrap_err().to_string();
        assert_eq!(error, "the short ended by itself: exit status: 3");
    }

    #[test]
    fn the_log_is_what_the_process_wrote_to_its_standard_error() {
        let mut command = shell("echo problem >&2");
        let mut process = Process::start("noisy", command.stderr(Stdio::piped())).unwrap();
        let log = process.log().unwrap();
        process.wait(LIMIT).unwrap();
        let began = std::time::Instant::now();
        while log.bytes() != b"problem\n" {
            assert!(began.elapsed() < LIMIT, "{:?}", log.bytes());
            std::thread::yield_now();
        }
    }
}
