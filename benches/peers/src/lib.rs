//! The peers that farcall is measured against. Each serves and calls the benchmark's service in its
//! own way, as a worker of `farcall-bench`.
//!
//! The harness contains everything that measures, and the peers that need no library (`std`,
//! `mux`).
#![forbid(unsafe_code)]

#[cfg(feature = "capnp")]
mod capnp_peer;
mod crossed;
mod tarpc_peer;
mod tonic_peer;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use farcall_benches::worker::{self, AllocationCounter};

/// Code that Cap'n Proto's compiler generates from `schema/bench.capnp`.
#[cfg(feature = "capnp")]
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all)]
#[allow(clippy::semicolon_if_nothing_returned, clippy::uninlined_format_args, clippy::unwrap_used)]
mod bench_capnp {
    include!(concat!(env!("OUT_DIR"), "/bench_capnp.rs"));
}

/// The peers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Subject {
    /// tonic as it comes.
    Tonic,
    /// tonic with windows and frames that suit large messages.
    TonicTuned,
    /// tonic's client over a channel of farcall's, to farcall's server.
    TonicOverFarcall,
    /// tonic's client at the port of farcall's server.
    TonicAtFarcall,
    /// tarpc with bincode.
    Tarpc,
    /// Cap'n Proto's RPC.
    #[cfg(feature = "capnp")]
    Capnp,
}

#[derive(Debug, Parser)]
#[command(about = "A worker of farcall-bench that is one of farcall's peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves or calls, and is told by lines what to do.
    Worker {
        /// The peer that serves or calls.
        #[arg(long, value_enum)]
        subject: Subject,
        #[command(flatten)]
        arguments: worker::Arguments,
    },
}

/// Lives as the worker that the command line asks for.
///
/// # Errors
///
/// Returns an error if it cannot serve or connect.
pub fn run(counter: Option<AllocationCounter>) -> Result<()> {
    let Command::Worker { subject, arguments } = Arguments::parse().command;
    match subject {
        Subject::Tonic => worker::run(&arguments, tonic_peer::Tonic::default(), counter),
        Subject::TonicTuned => worker::run(&arguments, tonic_peer::Tonic::tuned(), counter),
        Subject::TonicOverFarcall => worker::run(&arguments, crossed::OverFarcall, counter),
        Subject::TonicAtFarcall => worker::run(&arguments, crossed::AtFarcall, counter),
        Subject::Tarpc => worker::run(&arguments, tarpc_peer::Tarpc, counter),
        #[cfg(feature = "capnp")]
        Subject::Capnp => worker::run(&arguments, capnp_peer::Capnp, counter),
    }
}

/// The longest answer: the harness asks for no more.
const DOWNLOAD_LEN_MAX: usize = 64 << 20;

/// The part of an address behind `tcp://`.
fn host_and_port(address: &str) -> Result<&str> {
    address.strip_prefix("tcp://").with_context(|| format!("{address}: only tcp:// is served here"))
}
