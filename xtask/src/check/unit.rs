//! The step `unit`: every test program of the workspace, as many at once as there are processors,
//! and the examples in documentation. Cargo would run one program at a time, and half of the
//! processors would wait while a test does.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use farcall_testkit::process::bounded;

use crate::batch::{self, Job};
use crate::cargo::{self, Executable, WORKSPACE};

/// The bound on one test program. The longest takes half a minute on two cores of its own.
const PROGRAM_SECONDS: u64 = 900;

/// Builds and runs the tests, each cargo command within `limit`.
///
/// # Errors
///
/// Returns an error if something does not compile, or if tests fail or hang; all programs have run
/// by then.
pub(super) fn run(limit: Duration) -> Result<()> {
    let arguments = [&["test", "--no-run"], WORKSPACE].concat();
    println!("cargo {}", arguments.join(" "));
    let executables = cargo::executables(&arguments, limit)?;
    let jobs: Vec<_> =
        executables.into_iter().filter(|executable| executable.is_test).map(job).collect();
    let lanes = thread::available_parallelism().map_or(1, NonZero::get);
    println!("{} test programs, {lanes} at once", jobs.len());
    let tests = batch::run_at_once(&jobs, lanes);
    let mut examples = cargo::command([&["test", "--doc", "--no-fail-fast"], WORKSPACE].concat());
    println!("{}", bounded::command_line(&examples));
    let examples = bounded::run(&mut examples, limit);
    tests.and(examples.map_err(Into::into))
}

fn job(Executable { name, path, package, directory, .. }: Executable) -> Job {
    Job {
        name: format!("{package} {name}"),
        program: path,
        arguments: Vec::new(),
        variables: Vec::new(),
        directory,
        limit_seconds: PROGRAM_SECONDS,
    }
}
