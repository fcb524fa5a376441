//! Programs that make faults and lift them, each within a bound on its time.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::FaultError;

/// What a program that only talks to the kernel may take. On an emulated processor, on a host that
/// is busy otherwise, it has taken more than 10 s.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Runs a program to its success and gives its output.
pub(super) fn run(words: &[&str]) -> Result<String, FaultError> {
    Started::new(words)?.wait(LIMIT)
}

/// A program that was started. Dropped, it is killed, which does not end one that waits in the
/// kernel.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    line: String,
}

impl Started {
    pub(super) fn new(words: &[&str]) -> Result<Self, FaultError> {
        let line = words.join(" ");
        let [program, arguments @ ..] = words else {
            return Err(FaultError::Command { line, words: "no program".to_owned() });
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: io::Error| FaultError::Command {
            line: line.clone(),
            words: format!("it cannot be started: {error}"),
        };
        let child = command.spawn().map_err(failed)?;
        Ok(Self { child, line })
    }

    /// Waits for its success, and gives its output, which is short enough for a pipe to hold.
    pub(super) fn wait(mut self, limit: Duration) -> Result<String, FaultError> {
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if started.elapsed() > limit => {
                    let what = format!("the end of `{}`", self.line);
                    return Err(FaultError::Hung { what, seconds: limit.as_secs() });
                }
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        };
        let stdout = read(self.child.stdout.take())?;
        if status.success() {
            return Ok(stdout);
        }
        let words = read(self.child.stderr.take())?;
        Err(FaultError::Command { line: self.line.clone(), words: words.trim().to_owned() })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, mostly.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

fn read(pipe: Option<impl Read>) -> io::Result<String> {
    let mut text = String::new();
    pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text))?;
    Ok(text)
}

/// Waits for a condition that nothing announces, and says after what time it held.
pub(super) fn until(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> Result<bool, FaultError>,
) -> Result<Duration, FaultError> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > limit {
            return Err(FaultError::Hung { what: what.to_owned(), seconds: limit.as_secs() });
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failures_come_back() {
        assert_eq!(run(&["echo", "hello"]).unwrap(), "hello\n");
        let error = run(&["sh", "-c", "echo no >&2; exit 1"]).unwrap_err().to_string();
        assert_eq!(error, "`sh -c echo no >&2; exit 1` failed: no");
        assert!(run(&["no-such-program"]).unwrap_err().to_string().contains("cannot be started"));
    }

    #[test]
    fn a_program_that_hangs_is_named() {
        let error = Started::new(&["sleep", "3600"]).unwrap().wait(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "the end of `sleep 3600` did not happen within 0 s");
    }
}
