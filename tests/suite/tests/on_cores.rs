//! Every behaviour on servers with cores.

use std::process::ExitCode;
use std::time::Duration;

use farcall_suite::Path;

fn main() -> ExitCode {
    // Over RDMA connections are not served on cores: `server_cores` shows that. A core that ends
    // after its test would hold the simulated device that the suite counts.
    let under = [Path::Tcp, Path::Tls, Path::Unix, Path::Inproc, Path::GrpcToPort];
    let paths = under.map(|under| Path::OnCores(Box::new(under)));
    farcall_suite::run_all(&paths, Duration::from_secs(30))
}
