//! A list of programs, run one after the other, each within its bound. It is run by this program on
//! the host or, from a file, by this program inside the virtual machine: one boot serves them all.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::rdma_place::REQUIRED_VARIABLE;

/// One program of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// What it is called in the output.
    pub(crate) name: String,
    /// The executable.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// Variables of its environment.
    pub(crate) variables: Vec<(String, String)>,
    /// The folder in which it runs.
    pub(crate) directory: PathBuf,
    /// After how many seconds it is killed.
    pub(crate) limit_seconds: u64,
}

impl Job {
    fn run(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            // Cargo sets it for the tests that it runs, and some libraries for tests look for it.
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env(REQUIRED_VARIABLE, "required")
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        bounded::run(&mut command, Duration::from_secs(self.limit_seconds))
    }
}

/// Runs all `jobs`, also after one has failed.
///
/// # Errors
///
/// When one has failed, with the names of all that have.
pub(crate) fn run(jobs: &[Job]) -> Result<()> {
    let mut failed = Vec::new();
    for job in jobs {
        println!("=== {}", job.name);
        let started = Instant::now();
        let result = job.run();
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("=== {}: ok ({seconds:.1} s)", job.name),
            Err(error) => {
                println!("=== {}: FAILED ({seconds:.1} s): {error:#}", job.name);
                failed.push(job.name.as_str());
            }
        }
        if crate::interrupt::requested() {
            bail!("interrupted");
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs the jobs that [`write()`] has written to `file`.
///
/// # Errors
///
/// When the file cannot be read, and as [`run`].
pub(crate) fn run_file(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let jobs: Vec<Job> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a list of jobs", file.display()))?;
    run(&jobs)
}

/// The running program, also when its file has been replaced. (The virtual machine needs Linux.)
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// Writes `jobs` to `file` and returns the command that runs them.
///
/// The command is a copy of this program beside `file`: testing the workspace builds xtask anew,
/// which takes the running program's own file away.
///
/// # Errors
///
/// When either cannot be written.
pub(crate) fn write(jobs: &[Job], file: &Path) -> Result<Vec<OsString>> {
    fs::write(file, serde_json::to_string(jobs)?)
        .with_context(|| format!("writing {}", file.display()))?;
    let program = file.with_extension("xtask");
    fs::copy(RUNNING_PROGRAM, &program)
        .with_context(|| format!("copying this program to {}", program.display()))?;
    Ok(vec![program.into(), "batch".into(), file.into()])
}

/// The sum of the jobs' bounds.
pub(crate) fn limit(jobs: &[Job]) -> Duration {
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
    fn jobs_are_told_that_a_device_is_required() {
        run(&[job("variable", "test \"$FARCALL_RDMA\" = required")]).unwrap();
        run(&[job("its own", "test \"$GREETING\" = hello")]).unwrap();
    }
}
