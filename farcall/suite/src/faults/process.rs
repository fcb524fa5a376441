//! Our other processes: this program in another role, which can be killed and stopped.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::FaultError;
use super::command::until;

/// What a process may take to start, and to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// What a process may take to end: a server drains for a few seconds.
const END_LIMIT: Duration = Duration::from_secs(30);

/// By which a server is told to end in order.
pub(super) const SHUTDOWN: &str = "shutdown";

/// A running process. It ends when its standard input does, and so with us. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Process {
    role: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program in a role, and waits until it says something: that it is ready.
    pub(super) fn start(
        role: &'static str,
        arguments: &[&str],
    ) -> Result<(Self, String), FaultError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(FaultError::Ended { role });
        };
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let process = Self { role, child, stdin, lines };
        let line = process.line()?;
        Ok((process, line))
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says something to it, and gives what it answers.
    pub(super) fn ask(&mut self, words: &str) -> Result<String, FaultError> {
        writeln!(self.stdin, "{words}")?;
        self.line()
    }

    fn line(&self) -> Result<String, FaultError> {
        self.lines.recv_timeout(ANSWER_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => FaultError::Hung {
                what: format!("a word of the {}", self.role),
                seconds: ANSWER_LIMIT.as_secs(),
            },
            RecvTimeoutError::Disconnected => FaultError::Ended { role: self.role },
        })
    }

    /// Kills it with SIGKILL, in the middle of what it does.
    pub(super) fn kill(mut self) -> Result<(), FaultError> {
        if self.child.try_wait()?.is_some() {
            return Err(FaultError::Ended { role: self.role });
        }
        self.child.kill()?;
        self.wait()
    }

    /// Lets it end in order.
    pub(super) fn end(mut self) -> Result<(), FaultError> {
        writeln!(self.stdin, "{SHUTDOWN}")?;
        self.wait()
    }

    /// Stops it with SIGSTOP: it lives and does nothing.
    pub(super) fn stop(&self) -> Result<(), FaultError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> Result<(), FaultError> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), FaultError> {
        let id =
            i32::try_from(self.child.id()).map_err(|_| FaultError::Ended { role: self.role })?;
        kill(Pid::from_raw(id), signal).map_err(std::io::Error::from)?;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), FaultError> {
        let what = format!("the end of the {}", self.role);
        until(&what, END_LIMIT, || Ok(self.child.try_wait()?.is_some())).map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
