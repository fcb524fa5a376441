//! Servers for clients of gRPC from elsewhere: the services of gRPC's interoperability tests and of
//! the suite, health and reflection, at the port of a farcall server. There is one without TLS, one
//! with it, and one that asks for certificates. Writes the certificates to the folder that it is
//! given, prints the addresses, and ends with its input.
#![forbid(unsafe_code)]

use std::io::Read as _;
use std::process::ExitCode;

use futures::FutureExt as _;
use futures::future::try_join_all;

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
        let folder = std::env::args_os().nth(1).ok_or("it needs a folder")?;
        let listeners = farcall_suite::interop_servers(folder.as_ref()).await?;
        for listener in &listeners {
            println!("{}", listener.local_address());
        }
        let end = end.shared();
        let served = listeners.into_iter().map(|listener| {
            let end = end.clone();
            listener.serve_with_shutdown(async { drop(end.await) })
        });
        try_join_all(served).await?;
        Ok(())
    })
}
