//! Servers for clients of gRPC from elsewhere: the services of gRPC's interoperability tests and of
//! the suite, health and reflection, at the port of a farcall server. There is one for each way to
//! reach it: without TLS, with it, with certificates of clients, a Unix socket, and behind load
//! balancers. Writes the certificates to the folder that is its first argument, prints the
//! addresses, and ends with its input. Further arguments are origins whose pages have leave to
//! call.
//!
//! `--call ADDRESS` makes it a client: it runs gRPC's interoperability cases against the server
//! there, and prints a line for each, "ok NAME" or "FAILED NAME: why", and "done" at its end. With
//! a number of seconds behind the address, a last case has a call that is silent for as long.
#![forbid(unsafe_code)]

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::try_join_all;

use farcall_rig::exit_code;
use farcall_suite::{Failure, Harness, behaviours, ping_pong};

/// The bound on a case.
const CASE_LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    exit_code("farcall-interop", run().map(|()| true))
}

fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = ended.send(());
        });
        let mut arguments = std::env::args().skip(1).peekable();
        if arguments.next_if_eq("--call").is_some() {
            let address = arguments.next().ok_or("it needs an address")?;
            let silence = arguments.next().map(|seconds| seconds.parse()).transpose()?;
            call(&address, silence.map(Duration::from_secs)).await;
            return Ok(());
        }
        let folder = arguments.next().ok_or("it needs a folder")?;
        let web_origins: Vec<String> = arguments.collect();
        let listeners = farcall_suite::interop_servers(folder.as_ref(), &web_origins).await?;
        for listener in &listeners {
            println!("{}", listener.local_address());
        }
        let end = end.shared();
        let served = listeners.into_iter().map(|listener| {
            let end = end.clone();
            listener.serve().with_graceful_shutdown(async { drop(end.await) })
        });
        try_join_all(served).await?;
        Ok(())
    })
}

/// Runs the cases that need no word of the server's handlers.
async fn call(address: &str, silence: Option<Duration>) {
    let harness = Harness::elsewhere(address, CASE_LIMIT);
    let is_case = |name: &str| name.starts_with("interop_") && !name.contains("cancel");
    for behaviour in behaviours().into_iter().filter(|behaviour| is_case(behaviour.name)) {
        let name = behaviour.name.trim_start_matches("interop_");
        run_case(name, CASE_LIMIT, (behaviour.run)(&harness)).await;
    }
    if let Some(silence) = silence {
        let name = format!("silence_of_{}_s", silence.as_secs());
        run_case(&name, CASE_LIMIT + silence, ping_pong(&harness, silence)).await;
    }
    println!("done");
}

async fn run_case(name: &str, limit: Duration, case: impl Future<Output = Result<(), Failure>>) {
    match tokio::time::timeout(limit, case).await {
        Ok(Ok(())) => println!("ok {name}"),
        Ok(Err(failure)) => {
            let message = failure.to_string().replace('\n', " ");
            println!("FAILED {name}: {message}");
        }
        Err(_) => println!("FAILED {name}: it did not end within {limit:?}"),
    }
}
