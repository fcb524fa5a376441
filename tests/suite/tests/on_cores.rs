//! Every behaviour on servers with cores.

use std::process::ExitCode;
use std::time::Duration;

use farcall::rdma::RkeyScope;
use farcall_suite::Path;

fn main() -> ExitCode {
    let rdma = Path::SimulatedRdma { rkey_scope: RkeyScope::Region };
    let under = [Path::Tcp, Path::Tls, Path::Unix, Path::Inproc, Path::GrpcToPort, rdma];
    let paths = under.map(|under| Path::OnCores(Box::new(under)));
    farcall_suite::run_all(&paths, Duration::from_secs(30))
}
