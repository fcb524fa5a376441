//! Every behaviour over RDMA, where there is a device.
//!
//! `FARCALL_RDMA=required` says that there is, and then nothing else will do: a connection that
//! does not run over RDMA fails its test. `FARCALL_RDMA_SERVER` is the device's address, 10.0.1.1
//! by default, which is that of the virtual machine that `cargo xtask test` starts.

use std::process::ExitCode;
use std::time::Duration;

/// Twice that of the other transports: the device may be emulated on an emulated processor.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return ExitCode::SUCCESS;
    }
    let host = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned());
    farcall_suite::run(&farcall_suite::Path::Rdma { host }, LIMIT)
}
