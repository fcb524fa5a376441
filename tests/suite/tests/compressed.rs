//! Every behaviour over TCP on loopback, with messages compressed in either direction.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Compressed, Duration::from_secs(30))
}
