//! Every behaviour over TLS on loopback, each side with a certificate.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::Tls, Duration::from_secs(30))
}
