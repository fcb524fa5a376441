//! The command `farcall`: asks, calls and measures services of farcall and gRPC.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod call;
mod check;
mod config;
mod describe;
#[cfg(target_os = "linux")]
mod doctor;
mod explain;
mod failure;
mod grpcurl;
mod guard;
mod list;
mod manual;
mod message;
mod method;
mod output;
mod ping;
mod proxy;
mod reflection;
mod requests;
mod schema;
mod source;
mod tap;
mod target;
mod top;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::failure::{Failure, clap_exit_code};
use crate::output::Output;

fn main() {
    guard::silence_caught_panics();
    let line = grpcurl::translate(std::env::args_os().collect());
    let code = match Cli::try_parse_from(&line) {
        Ok(cli) => run(cli),
        Err(error) => {
            // The terminal may be gone; the exit code still says what happened.
            let _ = error.print();
            clap_exit_code(&error, line.get(1).is_some_and(|name| name == "check"))
        }
    };
    // A thread may wait for the standard input, which a return from `main` would wait for, too.
    std::process::exit(code.into());
}

/// Runs the command, shows its failure, and returns its exit code.
fn run(cli: Cli) -> u8 {
    let output = Output::new(&cli.global);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(execute(cli, &output));
            // A thread that waits for a driver, or for the standard input, is not waited for.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::usage(format!("cannot start the runtime: {error}"))),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.exit_code()
        }
    }
}

async fn execute(cli: Cli, output: &Output) -> Result<u8, Failure> {
    let global = &cli.global;
    match cli.command {
        Command::Ping(args) => ping::run(global, &args, output).await.map(|()| 0),
        Command::List(args) => list::run(global, &args, output).await.map(|()| 0),
        Command::Describe(args) => describe::run(global, &args, output).await.map(|()| 0),
        Command::Call(args) => call::run(global, &args, output).await.map(|()| 0),
        Command::Bench(args) => bench::run(global, &args, output).await.map(|()| 0),
        Command::Check(args) => check::run(global, &args, output).await,
        Command::Explain(args) => explain::run(global, &args, output).await.map(|()| 0),
        Command::Tap(args) => tap::run(global, &args, output).await.map(|()| 0),
        Command::Proxy(args) => proxy::run(global, &args, output).await.map(|()| 0),
        Command::Top(args) => top::run(global, &args, output).await.map(|()| 0),
        #[cfg(target_os = "linux")]
        Command::Doctor(args) => doctor::run(global, &args, output).await,
        #[cfg(not(target_os = "linux"))]
        Command::Doctor(_) => Err(Failure::usage("RDMA needs Linux, and so does doctor")),
        Command::Config(command) => config::run(global, &command, output).map(|()| 0),
        Command::Completions(args) => manual::completions(&args, output).map(|()| 0),
        Command::Man(args) => manual::page(&args, output).map(|()| 0),
    }
}
