//! Every behaviour over RDMA on a simulated device, on any machine.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    farcall_suite::run(&farcall_suite::Path::SimulatedRdma, Duration::from_secs(30))
}
