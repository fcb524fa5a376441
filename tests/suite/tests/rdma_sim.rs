//! Every behaviour over RDMA on a simulated device, on any machine: keys open regions.

use std::process::ExitCode;
use std::time::Duration;

use farcall::rdma::RkeyScope;
use farcall_suite::Path;

fn main() -> ExitCode {
    let path = Path::SimulatedRdma { rkey_scope: RkeyScope::Region };
    farcall_suite::run(&path, Duration::from_secs(30))
}
