//! Every behaviour inside one process.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Inproc, Duration::from_secs(30))
}
