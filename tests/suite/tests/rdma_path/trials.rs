//! Tests that need RDMA devices to themselves: one after the other, or none where there are none.

use std::process::ExitCode;

use farcall_suite::Failure;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::rig::Rig;

/// A test: what it shows, and how.
pub(crate) type Test = (&'static str, fn(&Rig) -> Result<(), Failure>);

/// Runs the tests that the command line asks for. `misfit` says why the devices that were found
/// are not for these tests, if so.
pub(crate) fn run(tests: &'static [Test], misfit: impl Fn(&Rig) -> Option<String>) -> ExitCode {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return ExitCode::SUCCESS;
    }
    let rig = match Rig::find() {
        Ok(rig) => rig,
        Err(reason) => {
            println!("failed: {reason}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(reason) = misfit(&rig) {
        println!("skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    let trial = |&(name, test): &Test| {
        let rig = rig.clone();
        Trial::test(name, move || test(&rig).map_err(Failed::from))
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests.iter().map(trial).collect()).exit_code()
}
