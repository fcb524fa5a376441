//! Our other processes: this program in another role, which can be killed and stopped.

use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;

/// What a process may take to start, and to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// What a process may take to end: a server drains for a few seconds.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at a process that is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// By which a server is told to end in order.
pub(crate) const SHUTDOWN: &str = "shutdown";

/// A process of ours did not do what it was started for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It did not do something in time.
    #[error("{what} did not happen within {seconds} s")]
    Hung {
        /// What was waited for.
        what: String,
        /// The bound in seconds.
        seconds: u64,
    },
    /// It ended by itself.
    #[error("the {role} ended by itself")]
    Ended {
        /// What it was to do.
        role: &'static str,
    },
    /// The operating system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A running process. It ends when its standard input does, and so with us. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    role: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program in a role, and waits until it says something: that it is ready.
    pub(crate) fn start(
        role: &'static str,
        arguments: &[&str],
    ) -> Result<(Self, String), ProcessError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ProcessError::Ended { role });
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
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says something to it, and gives what it answers.
    pub(crate) fn ask(&mut self, words: &str) -> Result<String, ProcessError> {
        writeln!(self.stdin, "{words}")?;
        self.line()
    }

    fn line(&self) -> Result<String, ProcessError> {
        self.lines.recv_timeout(ANSWER_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ProcessError::Hung {
                what: format!("an answer of the {}", self.role),
                seconds: ANSWER_LIMIT.as_secs(),
            },
            RecvTimeoutError::Disconnected => ProcessError::Ended { role: self.role },
        })
    }

    /// Kills it with SIGKILL, in the middle of what it does.
    pub(crate) fn kill(mut self) -> Result<(), ProcessError> {
        if self.child.try_wait()?.is_some() {
            return Err(ProcessError::Ended { role: self.role });
        }
        self.child.kill()?;
        self.wait()
    }

    /// Lets it end in order.
    pub(crate) fn end(mut self) -> Result<(), ProcessError> {
        writeln!(self.stdin, "{SHUTDOWN}")?;
        self.wait()
    }

    /// Stops it with SIGSTOP: it lives and does nothing.
    pub(crate) fn stop(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let id =
            i32::try_from(self.child.id()).map_err(|_| ProcessError::Ended { role: self.role })?;
        kill(Pid::from_raw(id), signal).map_err(std::io::Error::from)?;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), ProcessError> {
        let started = Instant::now();
        while self.child.try_wait()?.is_none() {
            if started.elapsed() > END_LIMIT {
                let what = format!("the end of the {}", self.role);
                return Err(ProcessError::Hung { what, seconds: END_LIMIT.as_secs() });
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
