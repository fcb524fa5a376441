//! `farcall-bench` measures the figures of the goals, each side in processes of its own.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use farcall_benches::driver::{HandCommand, Options};
use farcall_benches::host_budgets::HostBudgetOptions;
use farcall_benches::rdma::BudgetOptions;
use farcall_benches::report;
use farcall_benches::run;
use farcall_benches::subjects::{self, BuiltIn};

#[derive(Parser)]
#[command(about = "Measures farcall against its goals", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    ByHand(HandCommand),
    /// Counts the instructions of calls over RDMA, where time counts instructions.
    #[command(hide = true)]
    Budgets(BudgetOptions),
    /// Counts the instructions of calls over TCP and simulated RDMA, with valgrind.
    HostBudgets(HostBudgetOptions),
    /// Renews the tables and plots of the report from files that `--json` has written.
    Report {
        /// The files; of a figure that stands in several, the last is taken.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The folder with `performance/figures.md`.
        #[arg(long, default_value = "docs/book/src")]
        out: PathBuf,
    },
    /// Renews the chart and the table of the README from a file that `--json` has written.
    Readme {
        /// A file with T1, T2, T3 and T7 of farcall, tonic and tarpc, all of one run.
        file: PathBuf,
        /// The folder with `performance/readme.svg`.
        #[arg(long, default_value = "docs/book/src")]
        out: PathBuf,
        /// The page with the table.
        #[arg(long, default_value = "README.md")]
        page: PathBuf,
    },
    /// A process that the driver starts: a server or a client that reads commands, one to a line.
    #[command(hide = true)]
    Worker(BuiltIn),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        None => run::run(&arguments.options),
        Some(Command::ByHand(command)) => command.run(),
        Some(Command::Budgets(options)) => options.run(),
        Some(Command::HostBudgets(options)) => options.run(),
        Some(Command::Report { files, out }) => report::write(&files, &out),
        Some(Command::Readme { file, out, page }) => report::write_readme(&file, &out, &page),
        Some(Command::Worker(options)) => subjects::run(&options, None),
    }
}
