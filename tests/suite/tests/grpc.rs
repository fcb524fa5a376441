//! The behaviours that tonic has a counterpart of, by tonic's generated clients over farcall's
//! channels, by services that tonic generated behind farcall's server, and over HTTP/2: tonic's
//! clients at the port of farcall's server, and farcall's stubs at that and at tonic's server.

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
        Path::GrpcPort,
        Path::GrpcToPort,
        Path::GrpcToTonic,
    ];
    farcall_suite::run_all(&paths, Duration::from_secs(30))
}
