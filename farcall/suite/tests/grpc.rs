//! The behaviours that tonic has a counterpart of, by tonic's generated clients over farcall's
//! channels, and by services that tonic generated behind farcall's server.

use std::process::ExitCode;
use std::time::Duration;

use farcall_suite::Path;

fn main() -> ExitCode {
    let over = |path| Path::GrpcOver(Box::new(path));
    let served = |path| Path::GrpcServed(Box::new(path));
    let paths = [
        over(Path::Inproc),
        over(Path::Tcp),
        over(Path::Unix),
        served(Path::Inproc),
        served(Path::Tcp),
        served(Path::Unix),
    ];
    farcall_suite::run_all(&paths, Duration::from_secs(30))
}
