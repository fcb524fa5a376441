//! Every behaviour over RDMA on a simulated device with memory windows: a key opens one frame, for
//! as long as that is offered.

use std::process::ExitCode;
use std::time::Duration;

use farcall::rdma::RkeyScope;
use farcall_suite::Path;

fn main() -> ExitCode {
    let path = Path::SimulatedRdma { rkey_scope: RkeyScope::Window };
    farcall_suite::run(&path, Duration::from_secs(30))
}
