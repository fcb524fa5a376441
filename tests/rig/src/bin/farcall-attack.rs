//! Attacks on loopback, as `cargo xtask attack` starts them, and the roles of the processes that
//! this program starts itself: servers, honest clients and hostile peers.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_rig::attack::{self, Assault, CallPlan, Scale, ServePlan, Trap};
use farcall_rig::{RigError, Selection, exit_code};

#[derive(Parser)]
#[command(about = "Attacks farcall's server and client over TCP, and shows what honest peers see")]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Name the rows: what each does, and what it may cost.
    List,
    /// Show rows; fails if one does not hold.
    Run {
        /// Show this row only. May be repeated.
        row: Vec<String>,
        /// Show the short forms, and of them the rows that every build runs.
        #[arg(long)]
        quick: bool,
    },
    /// Serve until the standard input ends.
    #[command(hide = true)]
    Serve(ServePlan),
    /// Call a server until the standard input ends.
    #[command(hide = true)]
    Call(CallPlan),
    /// Attack a server until the standard input ends.
    #[command(hide = true)]
    Assault {
        kind: Assault,
        /// Host and port.
        victim: SocketAddr,
        scale: Scale,
    },
    /// Wait for clients to attack until the standard input ends.
    #[command(hide = true)]
    Trap { kind: Trap, scale: Scale },
}

fn main() -> ExitCode {
    exit_code("farcall-attack", run(Options::parse().role))
}

/// The threads of each process: some are left where a handler blocks one.
const THREADS: usize = 4;

fn run(role: Role) -> Result<bool, RigError> {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    match role {
        Role::List => attack::list(),
        Role::Run { row, quick } => {
            return attack::matrix(&Selection { rows: row, is_quick: quick });
        }
        Role::Serve(plan) => attack::serve(runtime()?.handle(), &plan)?,
        Role::Call(plan) => attack::call(runtime()?.handle(), &plan)?,
        Role::Assault { kind, victim, scale } => {
            attack::assault(runtime()?.handle(), kind, victim, scale)?;
        }
        Role::Trap { kind, scale } => attack::trap(runtime()?.handle(), kind, scale)?,
    }
    Ok(true)
}
