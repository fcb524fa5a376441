//! Every behaviour over Unix sockets.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Unix, Duration::from_secs(30))
}
