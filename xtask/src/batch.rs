//! A list of programs, each run within its bound, one after the other or several at once: on the
//! host or, from a file, by this program inside the virtual machine, where one boot serves all.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::interrupt;
use anyhow::{Context as _, Result, anyhow, bail};
use farcall_testkit::process::bounded;
use serde::{Deserialize, Serialize};

/// Lines of a failed job's output that are shown once more at the end of all: a page of a log
/// viewer, which a failed test and its backtrace fit into.
const END_LINES: usize = 60;

/// One program of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Name in the output.
    pub name: String,
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
    /// The folder in which it runs.
    pub directory: PathBuf,
    /// After how many seconds it is killed.
    pub limit_seconds: u64,
}

impl Job {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            // Cargo sets it for the tests that it runs, and some libraries for tests look for it.
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        Ok(bounded::run(command, Duration::from_secs(self.limit_seconds))?)
    }
}

/// Runs all `jobs` one after the other, also after one has failed.
///
/// # Errors
///
/// Returns an error if one has failed, with the names of all that have.
pub fn run(jobs: &[Job]) -> Result<()> {
    let mut failed = Vec::new();
    for job in jobs {
        println!("=== {}", job.name);
        let (seconds, result) = timed(|| job.run(&mut job.command()));
        println!("{}", verdict(job, seconds, &result));
        if result.is_err() {
            failed.push(job.name.clone());
        }
        if interrupt::requested() {
            bail!("interrupted");
        }
    }
    all_passed(failed)
}

/// Runs all `jobs`, up to `lanes` at a time, also after one has failed. What a job prints is shown
/// whole when the job has ended.
///
/// # Errors
///
/// Returns an error if one has failed, with the names of all that have and, in lines of their own,
/// the ends of their outputs, or if an output cannot be kept.
pub fn run_at_once(jobs: &[Job], lanes: usize) -> Result<()> {
    let left = Mutex::new(jobs.iter());
    let failed = Mutex::new(Vec::new());
    let next = || left.lock().next().filter(|_| !interrupt::requested());
    let work = || {
        while let Some(job) = next() {
            if let Some(end) = run_apart(job)? {
                failed.lock().push((job.name.clone(), end));
            }
        }
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
        let ends = lanes.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a panic"))?);
        // All are joined before the first failure is returned.
        ends.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()
    })?;
    if interrupt::requested() {
        bail!("interrupted");
    }
    let mut failed = failed.into_inner();
    failed.sort_unstable();
    let (names, ends): (_, Vec<String>) = failed.into_iter().unzip();
    all_passed(names).map_err(|error| anyhow!("{error}\n{}", ends.join("\n")))
}

/// Runs `job` and shows what it printed. Returns the end of that if it failed.
fn run_apart(job: &Job) -> Result<Option<String>> {
    let mut output = tempfile::tempfile().context("no file for a job's output")?;
    let mut command = job.command();
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let (seconds, result) = timed(|| job.run(&mut command));
    let mut shown = Vec::new();
    output.seek(SeekFrom::Start(0))?;
    output.read_to_end(&mut shown)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "=== {}", job.name)?;
    stdout.write_all(&shown)?;
    let verdict = verdict(job, seconds, &result);
    writeln!(stdout, "{verdict}")?;
    Ok(result.is_err().then(|| format!("{}\n{verdict}", end_of(&String::from_utf8_lossy(&shown)))))
}

/// Returns the last lines of an output.
pub(crate) fn end_of(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(END_LINES)..].join("\n")
}

fn timed(work: impl FnOnce() -> Result<()>) -> (f64, Result<()>) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_secs_f64(), result)
}

/// The line below a job's output.
fn verdict(Job { name, .. }: &Job, seconds: f64, result: &Result<()>) -> String {
    match result {
        Ok(()) => format!("=== {name}: ok ({seconds:.1} s)"),
        Err(error) => format!("=== {name}: FAILED ({seconds:.1} s): {error:#}"),
    }
}

fn all_passed(mut failed: Vec<String>) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    failed.sort_unstable();
    bail!("failed: {}", failed.join(", "));
}

/// Runs the jobs that [`write()`] has written to `file`.
///
/// # Errors
///
/// Returns an error if the file cannot be read, and as [`run`].
pub fn run_file(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let jobs: Vec<Job> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a list of jobs", file.display()))?;
    run(&jobs)
}

/// The running program, also when its file has been replaced. (The virtual machine needs Linux.)
pub(crate) const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// Writes `jobs` to `file` and returns the command that runs them.
///
/// The command is a copy of this program beside `file`: testing the workspace builds xtask anew,
/// which takes the running program's own file away.
///
/// # Errors
///
/// Returns an error if either cannot be written.
pub fn write(jobs: &[Job], file: &Path) -> Result<Vec<OsString>> {
    fs::write(file, serde_json::to_string(jobs)?)
        .with_context(|| format!("writing {}", file.display()))?;
    let program = file.with_extension("xtask");
    fs::copy(RUNNING_PROGRAM, &program)
        .with_context(|| format!("copying this program to {}", program.display()))?;
    Ok(vec![program.into(), "batch".into(), file.into()])
}

/// The sum of the jobs' bounds.
pub fn limit(jobs: &[Job]) -> Duration {
    Duration::from_secs(jobs.iter().map(|job| job.limit_seconds).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, script: &str) -> Job {
        Job {
            name: name.into(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: vec![("GREETING".into(), "hello".into())],
            directory: "/".into(),
            limit_seconds: 60,
        }
    }

    #[test]
    fn a_failure_is_named_and_the_others_still_run() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let jobs = [job("first", "exit 1"), job("second", &format!("touch {}", mark.display()))];
        assert_eq!(run(&jobs).unwrap_err().to_string(), "failed: first");
        assert!(mark.exists());
    }

    #[test]
    fn a_hanging_job_fails_at_its_bound() {
        let mut hanging = job("hanging", "sleep 3600");
        hanging.limit_seconds = 0;
        assert_eq!(run(&[hanging]).unwrap_err().to_string(), "failed: hanging");
    }

    #[test]
    fn jobs_go_through_a_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs");
        let command = write(&[job("only", "exit 0")], &file).unwrap();
        assert_eq!(command[1], "batch");
        run_file(&file).unwrap();
        fs::write(&file, "[1]").unwrap();
        assert!(run_file(&file).is_err());
    }

    #[test]
    fn variables_are_the_jobs_own() {
        run(&[job("its own", "test \"$GREETING\" = hello")]).unwrap();
    }

    #[test]
    fn jobs_at_once_all_run_and_failures_are_named_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe").display().to_string();
        // Each of the two waits for the other.
        let meet = [job("reads", &format!("cat {pipe}")), job("writes", &format!("echo > {pipe}"))];
        run(&[job("makes", &format!("mkfifo {pipe}"))]).unwrap();
        run_at_once(&meet, 2).unwrap();
        let jobs =
            [job("second", "seq 1000; exit 1"), job("third", "exit 0"), job("first", "exit 1")];
        let failed = run_at_once(&jobs, 2).unwrap_err().to_string();
        let lines: Vec<_> = failed.lines().collect();
        assert!(lines[0] == "failed: first, second" && lines.contains(&"1000"), "{failed}");
        assert!(!lines.contains(&"900"), "the end of the output alone: {failed}");
    }
}
