//! Every behaviour over TCP on loopback.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Tcp, Duration::from_secs(30))
}
