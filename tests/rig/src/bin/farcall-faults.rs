//! The fault matrix in the virtual machine, where `cargo xtask faults` starts it, and the roles of
//! the processes that it starts itself.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_rig::faults::{self, CancelPlan};
use farcall_rig::{RigError, Selection, exit_code};

#[derive(Parser)]
#[command(about = "Breaks links, devices and processes, and shows what calls see of it")]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Name the rows: name, machines it takes, what happens.
    List,
    /// Show the rows of one machine.
    Matrix {
        /// Show this row only. May be repeated.
        #[arg(long)]
        row: Vec<String>,
        /// Show the short rows only.
        #[arg(long)]
        quick: bool,
    },
    /// Show the rows of two machines; each of them runs this.
    TwoHosts {
        /// Show this row only. May be repeated.
        #[arg(long)]
        row: Vec<String>,
    },
    /// Make large calls and give most of them up: nothing is harmed, nothing is left.
    Cancels {
        /// Calls in all.
        #[arg(long, default_value_t = 10_000)]
        calls: u64,
        /// Connections, each with a lane of its own.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=32))]
        connections: u64,
        /// Seed of the calls.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Serve until the standard input ends.
    #[command(hide = true)]
    Serve {
        /// Host and port.
        authority: String,
    },
    /// Call a server over RDMA until killed.
    #[command(hide = true)]
    Call {
        /// Host and port.
        authority: String,
    },
}

fn main() -> ExitCode {
    exit_code("farcall-faults", run(Options::parse().role))
}

fn run(role: Role) -> Result<bool, RigError> {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match role {
        Role::List => faults::list(),
        Role::Matrix { row, quick } => {
            return faults::matrix(&Selection { rows: row, is_quick: quick });
        }
        Role::TwoHosts { row } => {
            return faults::two_hosts(&Selection { rows: row, is_quick: false });
        }
        Role::Cancels { calls, connections, seed } => {
            return faults::cancels(&CancelPlan { calls, connections, seed });
        }
        Role::Serve { authority } => faults::serve(runtime()?.handle(), &authority)?,
        Role::Call { authority } => faults::run_for_ever(runtime()?.handle(), &authority)?,
    }
    Ok(true)
}
