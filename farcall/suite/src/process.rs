//! Our other processes: this program in another role, which can be killed and stopped.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// What is kept of a process's log. What comes behind it is read, so that the process never waits
/// for us, and thrown away.
const LOG_LEN_MAX: usize = 16 << 20;

/// The processes that run, so that [`kill_all`] finds them.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    // Nothing is done with the set but to insert and to remove.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every process that [`Process`] has started, for a program that is about to end without
/// running destructors.
pub(crate) fn kill_all() {
    for &id in &*running() {
        if let Ok(id) = i32::try_from(id) {
            // It has ended, at worst.
            let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

/// What a process has written to its standard error.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl ProcessLog {
    /// What it has written so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LOG_LEN_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

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
        Self::spawn(role, arguments, Stdio::inherit())
    }

    /// As [`Process::start`], and keeps what it logs instead of showing it.
    pub(crate) fn start_logged(
        role: &'static str,
        arguments: &[&str],
    ) -> Result<(Self, String, ProcessLog), ProcessError> {
        let (mut process, line) = Self::spawn(role, arguments, Stdio::piped())?;
        let log = ProcessLog::default();
        let stderr = process.child.stderr.take();
        let kept = log.clone();
        std::thread::spawn(move || {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = stderr.read(&mut buffer) {
                kept.add(&buffer[..len]);
            }
        });
        Ok((process, line, log))
    }

    fn spawn(
        role: &'static str,
        arguments: &[&str],
        stderr: Stdio,
    ) -> Result<(Self, String), ProcessError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn()?;
        running().insert(child.id());
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
        running().remove(&self.child.id());
    }
}
