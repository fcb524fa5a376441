//! One process: lines in, lines out, every wait bounded, killed when it is dropped.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often it is looked whether a process has ended: there is no wait for that with a bound.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A process that answers lines with lines. Its standard error is that of this process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
}

impl Process {
    /// Starts `command`; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name} ({command:?})"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the output was asked for as a pipe")?;
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Ends with the output, or when nobody reads the lines any more.
            BufReader::new(stdout).lines().try_for_each(|line| send.send(line).ok());
        });
        Ok(Self { name: name.to_owned(), child, stdin, lines })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output.
    ///
    /// # Errors
    ///
    /// When none comes within `limit`, or the output ends.
    pub fn line(&mut self, limit: Duration) -> Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => line.with_context(|| format!("reading the output of {}", self.name)),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{} said nothing for {} s", self.name, limit.as_secs_f64())
            }
            Err(RecvTimeoutError::Disconnected) => {
                // It has closed its output, so it ends now, or never by itself.
                let end = self.wait(Duration::from_secs(1));
                bail!(
                    "{} ended without an answer: {}",
                    self.name,
                    end.map_or_else(|error| error.to_string(), |status| status.to_string(),)
                )
            }
        }
    }

    /// Sends `request` as one line of JSON and reads the answer, which is one too.
    ///
    /// # Errors
    ///
    /// When the process has ended, does not answer within `limit`, or answers something else.
    pub fn ask<R: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        limit: Duration,
    ) -> Result<R> {
        self.send(&serde_json::to_string(request)?)?;
        self.answer(limit)
    }

    /// Sends one line.
    ///
    /// # Errors
    ///
    /// When the process takes no more of them.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the input was asked for as a pipe")?;
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("{} takes no more requests", self.name))
    }

    /// Interrupts it, as a person would at its terminal, so that it tells what it has to tell.
    ///
    /// # Errors
    ///
    /// When it cannot be sent a signal.
    pub fn interrupt(&self) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(id, Signal::SIGINT).with_context(|| format!("interrupting {}", self.name))
    }

    /// Reads a line of JSON.
    ///
    /// # Errors
    ///
    /// When none comes within `limit`, or it is something else.
    pub fn answer<R: DeserializeOwned>(&mut self, limit: Duration) -> Result<R> {
        let line = self.line(limit)?;
        serde_json::from_str(&line)
            .with_context(|| format!("{} said what is not understood: {line}", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it is still there after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(
                Instant::now() < end,
                "{} was still running after {} s",
                self.name,
                limit.as_secs_f64()
            );
            std::thread::sleep(EXIT_POLL_INTERVAL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a tool to its end and returns its standard output.
///
/// # Errors
///
/// When it cannot be started, is still running after `limit`, or fails; what it wrote to its
/// standard error is part of the error.
pub fn output(mut command: Command, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stderr(Stdio::piped());
    let mut process = Process::start(&name, command)?;
    drop(process.stdin.take());
    let stderr = process.child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read before an error is better than nothing.
        let _ = stderr.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let end = Instant::now() + limit;
    let mut text = String::new();
    loop {
        match process.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                text.push_str(&line?);
                text.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                bail!("{name} was still running after {} s", limit.as_secs_f64())
            }
        }
    }
    let status = process.wait(end.saturating_duration_since(Instant::now()))?;
    let errors = errors.join().map_err(|_| anyhow!("reading the errors of {name} panicked"))?;
    ensure!(status.success(), "{name} failed with {status}: {}", errors.trim());
    Ok(text)
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
        let mut process = Process::start("echo", Command::new("cat")).unwrap();
        let answer: Vec<u32> = process.ask(&[1, 2, 3], LIMIT).unwrap();
        assert_eq!(answer, [1, 2, 3]);
    }

    #[test]
    fn silence_is_bounded_and_named() {
        let mut process = Process::start("mute", Command::new("cat")).unwrap();
        let error = process.line(Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("mute said nothing"), "{error}");
    }

    #[test]
    fn an_end_without_an_answer_is_told_with_its_status() {
        let mut process = Process::start("short", shell("exit 3")).unwrap();
        let error = process.line(LIMIT).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_process_does_not_outlive_its_value() {
        let process = Process::start("long", shell("exec sleep 1000")).unwrap();
        let folder = format!("/proc/{}", process.id());
        assert!(std::path::Path::new(&folder).exists());
        drop(process);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_tool_gives_its_output_or_its_errors() {
        assert_eq!(output(shell("echo one; echo two"), LIMIT).unwrap(), "one\ntwo\n");
        let error = output(shell("echo broken >&2; exit 1"), LIMIT).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
        let error = output(shell("exec sleep 1000"), Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
    }
}
