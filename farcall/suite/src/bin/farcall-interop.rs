//! A server for clients of gRPC from elsewhere: the services of gRPC's interoperability tests and
//! of the suite, health and reflection, at one port of a farcall server. Prints its address, and
//! ends with its input.
#![forbid(unsafe_code)]

use std::io::Read as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcall-interop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = ended.send(());
        });
        let listener = farcall_suite::interop_server().await?;
        println!("{}", listener.local_address());
        let shutdown = async { drop(end.await) };
        listener.serve_with_shutdown(shutdown).await?;
        Ok(())
    })
}
