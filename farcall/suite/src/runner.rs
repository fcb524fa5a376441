//! Runs every behaviour over one path as a test of its own, with cargo's usual filters.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::failure::Cause;
use crate::{Behaviour, Failure, Harness, Path, behaviours};

/// How long the tasks of a behaviour that has ended may take to end.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);

/// Runs the tests that the command line asks for, each within `limit`.
#[must_use]
pub fn run(path: &Path, limit: Duration) -> ExitCode {
    let trials = behaviours().into_iter().map(|behaviour| trial(behaviour, path.clone(), limit));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn trial(behaviour: Behaviour, path: Path, limit: Duration) -> Trial {
    let name = format!("{path}::{}", behaviour.name);
    Trial::test(name, move || show(behaviour, path, limit).map_err(Failed::from))
}

/// Shows one behaviour on a runtime of its own.
fn show(behaviour: Behaviour, path: Path, limit: Duration) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let harness = Harness::new(path, limit);
    let shown = runtime.block_on(async {
        let shown = tokio::time::timeout(limit, (behaviour.run)(&harness)).await;
        let seconds = limit.as_secs();
        let timed_out = Cause::TimedOut { what: behaviour.name, seconds };
        shown.unwrap_or_else(|_| Err(Failure::new(timed_out)))
    });
    runtime.shutdown_timeout(CLEANUP_LIMIT);
    shown
}
