//! Counting the system calls of processes, with `perf stat`.
//!
//! It counts in the kernel and stops no process, so that the calls are batched as they are without
//! it. A tracer such as `strace` makes every system call so slow that more work gathers for the
//! next.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::{Process, Signal};

const EVENT: &str = "raw_syscalls:sys_enter";

/// Maximum time for which `perf` may take to obey a command.
const LIMIT: Duration = Duration::from_secs(20);

/// Counts the system calls that the process `id` makes during `work`, on all its threads.
///
/// # Errors
///
/// Returns an error if `work` fails, or `perf` cannot count: this user or this kernel may not let
/// it.
pub fn count<T>(id: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counted");
    let mut perf = start(id, &file)?;
    command(&mut perf, "enable")?;
    let done = work()?;
    command(&mut perf, "disable")?;
    perf.signal(Signal::SIGINT)?;
    perf.wait(LIMIT)?;
    Ok((done, parse(&std::fs::read_to_string(&file)?)?))
}

fn start(id: u32, file: &Path) -> Result<Process> {
    let mut command = Command::new("perf");
    // Counting begins when it is told to, and commands and their answers are lines.
    command.args(["stat", "-x", ",", "--delay", "-1", "--control", "fd:0,1", "--event", EVENT]);
    command.arg("--pid").arg(id.to_string()).arg("--output").arg(file);
    // What it says there is that it was told to count.
    command.stderr(Stdio::null());
    Ok(Process::start("perf", &mut command)?)
}

fn command(perf: &mut Process, word: &str) -> Result<()> {
    perf.send(word)?;
    let answer = perf.line(LIMIT).context("counting system calls")?;
    if !answer.contains("ack") {
        bail!("perf answered {answer:?} to {word}");
    }
    Ok(())
}

/// The count in what `perf stat -x ,` writes: the first field of the line of our event.
fn parse(text: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.contains(EVENT));
    let line = line.with_context(|| format!("perf says nothing of {EVENT}"))?;
    let field = line.split(',').next().unwrap_or_default();
    field.parse().with_context(|| format!("perf could not count: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        let text = "# started on Fri\n\n1234,,raw_syscalls:sys_enter,500,100.00,,\n";
        assert_eq!(parse(text).unwrap(), 1234);
    }

    #[test]
    fn what_was_not_counted_is_no_number() {
        let error = parse("<not counted>,,raw_syscalls:sys_enter,0,0.00,,").unwrap_err();
        assert!(error.to_string().contains("not counted"));
        assert!(parse("").is_err());
    }
}
