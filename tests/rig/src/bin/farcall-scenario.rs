//! Servers are restarted, killed and slowed while clients call them: the program behind `cargo
//! xtask scenario`, and the server's role of the processes that it starts.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_rig::scenario::{self, Scenario, ServePlan};
use farcall_rig::{RigError, exit_code};

#[derive(Parser)]
#[command(about = "Restarts, kills and slows servers under load, and shows what clients see")]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Show scenarios; fails if one does not hold.
    Run {
        /// Show this one only. May be repeated.
        scenario: Vec<Scenario>,
        /// Show those that every build runs.
        #[arg(long, conflicts_with = "scenario")]
        short: bool,
    },
    /// Serve until the standard input ends.
    #[command(hide = true)]
    Serve(ServePlan),
}

fn main() -> ExitCode {
    exit_code("farcall-scenario", run(Options::parse().role))
}

fn run(role: Role) -> Result<bool, RigError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(match role {
        Role::Run { short: true, .. } => scenario::run(runtime.handle(), &Scenario::SHORT),
        Role::Run { scenario, .. } if scenario.is_empty() => {
            scenario::run(runtime.handle(), &Scenario::ALL)
        }
        Role::Run { scenario, .. } => scenario::run(runtime.handle(), &scenario),
        Role::Serve(plan) => {
            scenario::serve(runtime.handle(), &plan)?;
            true
        }
    })
}
