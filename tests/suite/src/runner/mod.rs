//! Runs every behaviour over one path as a test of its own, with cargo's usual filters.

mod counterpart;
mod report;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::failure::Cause;
use crate::harness::stack::Stack;
use crate::{Behaviour, Failure, Harness, Path, behaviours};
use counterpart::{Counterpart, blocks, counterpart};
use report::{BehaviourOutcome, Report};

/// Time in which the tasks of a finished behaviour must end. Nothing on a simulated device may be
/// left then, and on a busy host freeing memory has taken seconds.
const CLEANUP_LIMIT: Duration = Duration::from_secs(30);

/// Runs the tests that the command line asks for, each within `limit`.
#[must_use]
pub fn run(path: &Path, limit: Duration) -> ExitCode {
    run_all(std::slice::from_ref(path), limit)
}

/// Runs like [`run`], over several paths.
#[must_use]
pub fn run_all(paths: &[Path], limit: Duration) -> ExitCode {
    let arguments = Arguments::from_args();
    match trials(paths, limit) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("the report cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn trials(paths: &[Path], limit: Duration) -> io::Result<Vec<Trial>> {
    let report = Report::from_environment()?.map(Arc::new);
    let mut trials = Vec::new();
    for path in paths {
        add_trials(path, limit, report.as_ref(), &mut trials)?;
    }
    Ok(trials)
}

fn add_trials(
    path: &Path,
    limit: Duration,
    report: Option<&Arc<Report>>,
    trials: &mut Vec<Trial>,
) -> io::Result<()> {
    let column = path.to_string();
    let add = |name, outcome| report.map_or(Ok(()), |report| report.add(&column, name, outcome));
    for behaviour in behaviours() {
        let counterpart = match (Stack::of(path), counterpart(behaviour.name)) {
            _ if matches!(path, Path::OnCores(_)) && blocks(behaviour.name) => {
                Counterpart::Absent("a handler that blocks holds up its core")
            }
            (Stack::Farcall, _) => Counterpart::Same,
            (Stack::Tonic, counterpart) => counterpart,
            // What differs from our own stub and server is told by the stack.
            (_, Counterpart::Different(_)) => Counterpart::Same,
            (_, counterpart) => counterpart,
        };
        let difference = match counterpart {
            Counterpart::Absent(reason) => {
                add(behaviour.name, BehaviourOutcome::Absent(reason))?;
                continue;
            }
            Counterpart::Different(difference) => Some(difference),
            Counterpart::Same => None,
        };
        add(behaviour.name, BehaviourOutcome::Planned)?;
        let (path, report, column) = (path.clone(), report.cloned(), column.clone());
        let name = format!("{path}::{}", behaviour.name);
        trials.push(Trial::test(name, move || {
            let shown = show(behaviour, path, limit);
            let outcome = shown
                .as_ref()
                .map_or(BehaviourOutcome::Failed, |()| BehaviourOutcome::Passed(difference));
            if let Some(report) = report {
                report.add(&column, behaviour.name, outcome)?;
            }
            shown.map_err(Failed::from)
        }));
    }
    Ok(())
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
    shown.and_then(|()| harness.check_device())
}
