//! Servers for clients of gRPC from elsewhere: the services of gRPC's interoperability tests and of
//! the suite, health and reflection, at the port of a farcall server. There is one without TLS, one
//! with it, one that asks for certificates, and one at a Unix socket. Writes the certificates to
//! the folder that is its first argument, prints the addresses, and ends with its input. Further
//! arguments are origins whose pages have leave to call.
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
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().ok_or("it needs a folder")?;
        let web_origins: Vec<String> = arguments.collect();
        let listeners = farcall_suite::interop_servers(folder.as_ref(), &web_origins).await?;
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
