//! `cargo xtask`: the tasks of this workspace. It builds without any system library, because it is
//! what installs them.
//!
//! The release tooling (`xtask/release`) is a package of its own and uses the public modules.
#![forbid(unsafe_code)]

mod attack;
pub mod batch;
mod bench;
mod book;
mod budgets;
pub mod cargo;
pub mod check;
mod demo;
mod deploy;
mod faults;
mod hardware;
pub mod interop;
pub mod interrupt;
pub mod kernel;
mod phase;
pub mod program;
pub mod rdma_device;
pub mod rdma_place;
mod rdma_programs;
mod release;
mod scenario;
pub mod setup;
mod suite;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum as _};

use attack::AttackOptions;
use bench::BenchOptions;
use check::CheckStep;
use faults::FaultsOptions;
use hardware::HardwareOptions;
use interop::InteropOptions;
use kernel::Series;
use release::ReleaseOptions;
use scenario::ScenarioOptions;
use setup::Purpose;
use suite::Transport;
use vm::VmOptions;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Tasks of the farcall workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building, checking and the virtual machine need.
    Setup,
    /// Run the checks of the workspace, with what they need installed first.
    Test {
        /// Run this step only. May be repeated.
        #[arg(long, value_enum)]
        only: Vec<CheckStep>,
        /// Show the steps instead of running them.
        #[arg(long)]
        list: bool,
        /// The kernel of the virtual machine.
        #[arg(long, value_enum, default_value_t = Series::V6_1)]
        kernel: Series,
    },
    /// Show every behaviour over every transport, and what tonic does in its place, in one table.
    Suite {
        /// Show this column only. May be repeated.
        #[arg(long, value_enum)]
        transport: Vec<Transport>,
        /// Show RDMA too, on this host's device or in the virtual machine.
        #[arg(long)]
        rdma: bool,
        /// The kernel of the virtual machine.
        #[arg(long, value_enum, default_value_t = Series::V6_1)]
        kernel: Series,
    },
    /// Run the key-value demo over every transport.
    Demo {
        /// The kernel of the virtual machine.
        #[arg(long, value_enum, default_value_t = Series::V6_1)]
        kernel: Series,
    },
    /// Pack the crates that users need, and build and start a crate that uses the packages.
    Package(ReleaseOptions),
    /// Call an earlier version of this clone, and have it call this one.
    Compat(ReleaseOptions),
    /// Check what a release would publish, and in which order. Nothing is published.
    Publish(ReleaseOptions),
    /// Render the book in `docs/book` into `target/book`, and check its links.
    Book,
    /// Measure farcall against its goals and its peers, and print the figures as a table.
    Bench(BenchOptions),
    /// Restart, kill and slow servers under load, and show what clients see of it.
    Scenario(ScenarioOptions),
    /// Attack servers and clients with hostile peers, and show what honest ones see of it.
    Attack(AttackOptions),
    /// Show gRPC's interoperability cases: tonic on either side, Python's client, a browser's page.
    Interop(InteropOptions),
    /// Break links, devices and processes in the virtual machine, and show what calls see of it.
    Faults(FaultsOptions),
    /// Try RDMA between this host and another for about thirty minutes, and keep the results.
    Hardware(HardwareOptions),
    /// Measure the code itself: lengths of files, comments, circles of imports, as a table.
    Measure(ReleaseOptions),
    /// Mutate the pure state machines, and list the mutants that their tests miss.
    Mutants(ReleaseOptions),
    /// Run the README's commands as a new user does, on a bare Debian of every suite. Needs root.
    Portability(ReleaseOptions),
    /// Run a command in the Soft-RoCE virtual machine; its exit status becomes ours (124: time is
    /// over, 125: none).
    Vm(VmOptions),
    /// Run the jobs of a file. This is what runs in the virtual machine.
    #[command(hide = true)]
    Batch {
        /// The file.
        file: PathBuf,
    },
}

/// Runs the task that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => interrupt::report(&error),
    }
}

fn run(task: Task) -> Result<ExitCode> {
    interrupt::watch()?;
    match task {
        Task::Setup => {
            setup::ensure(Purpose::OF_TESTS)?;
            eprintln!("xtask: everything is there");
        }
        Task::Test { only, list, kernel } => {
            let steps = CheckStep::value_variants();
            let wanted = |step: &CheckStep| only.is_empty() || only.contains(step);
            let steps: Vec<CheckStep> = steps.iter().copied().filter(wanted).collect();
            if list {
                check::list(&steps);
            } else {
                check::run(&steps, kernel)?;
            }
        }
        Task::Suite { transport, rdma, kernel } => {
            let transports = Transport::chosen(&transport, rdma.then_some(Transport::Rdma));
            suite::run(&transports, kernel)?;
        }
        Task::Demo { kernel } => demo::run(kernel)?,
        Task::Package(options) => release::replace("package", options)?,
        Task::Compat(options) => release::replace("compat", options)?,
        Task::Publish(options) => release::replace("publish", options)?,
        Task::Book => {
            setup::ensure(&[Purpose::Build])?;
            book::build()?;
        }
        Task::Bench(options) => bench::run(&options)?,
        Task::Attack(options) => attack::run(&options)?,
        Task::Scenario(options) => scenario::run(&options)?,
        Task::Interop(options) => interop::run(&options)?,
        Task::Faults(options) => faults::run(&options)?,
        Task::Hardware(options) => hardware::run(&options)?,
        Task::Measure(options) => release::replace("measure", options)?,
        Task::Mutants(options) => release::replace("mutants", options)?,
        Task::Portability(options) => release::replace("portability", options)?,
        Task::Vm(options) => return Ok(ExitCode::from(vm::run(&options)?.exit_code())),
        Task::Batch { file } => batch::run_file(&file)?,
    }
    Ok(ExitCode::SUCCESS)
}
