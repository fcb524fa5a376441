//! The behaviours that tonic has a counterpart of, by its generated clients and its own server.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Tonic, Duration::from_secs(30))
}
