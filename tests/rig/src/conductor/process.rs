//! Our other processes: this program in another role, which can be killed and stopped.

use std::process::{Command, Stdio};
use std::time::Duration;

use farcall_testkit::process::{self, ProcessError, ProcessLog, Signal};

use super::role::SHUTDOWN;

/// Maximum time for a process to start, and to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time for a process to end. A server drains for a few seconds.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A running process. It ends when its standard input does, and so with us. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process(process::Process);

impl Process {
    /// Starts this program in a role, and waits until it says something: that it is ready.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Result<(Self, String), ProcessError> {
        Self::spawn(role, arguments, Stdio::inherit())
    }

    /// Starts a process like [`Process::start`], and keeps its log instead of showing it.
    pub(crate) fn start_logged(
        role: &str,
        arguments: &[&str],
    ) -> Result<(Self, String, ProcessLog), ProcessError> {
        let (mut process, line) = Self::spawn(role, arguments, Stdio::piped())?;
        let log = process.0.log().expect("its standard error was asked for as a pipe");
        Ok((process, line, log))
    }

    fn spawn(
        role: &str,
        arguments: &[&str],
        stderr: Stdio,
    ) -> Result<(Self, String), ProcessError> {
        let program = std::env::current_exe().expect("Linux names the program that runs");
        let mut command = Command::new(program);
        let mut process = process::Process::start(role, command.args(arguments).stderr(stderr))?;
        let line = process.line(ANSWER_LIMIT)?;
        Ok((Self(process), line))
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Says something to it, and gives what it answers.
    pub(crate) fn ask(&mut self, text: &str) -> Result<String, ProcessError> {
        self.0.ask(text, ANSWER_LIMIT)
    }

    /// Kills it with SIGKILL, in the middle of its work.
    pub(crate) fn kill(self) -> Result<(), ProcessError> {
        self.0.kill(END_LIMIT)
    }

    /// Lets it end in order.
    pub(crate) fn end(mut self) -> Result<(), ProcessError> {
        self.0.send(SHUTDOWN)?;
        self.0.wait(END_LIMIT).map(drop)
    }

    /// Stops it with SIGSTOP: it lives and does nothing.
    pub(crate) fn stop(&self) -> Result<(), ProcessError> {
        self.0.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) -> Result<(), ProcessError> {
        self.0.signal(Signal::SIGCONT)
    }
}
