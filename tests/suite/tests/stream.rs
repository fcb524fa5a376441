//! Every behaviour over byte streams that the program made.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Stream, Duration::from_secs(30))
}
