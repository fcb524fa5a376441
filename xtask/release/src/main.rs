//! Release tooling: tasks that a maintainer runs before a release, and that neither the demo nor
//! the checks need. `cargo xtask` builds this program on demand and replaces itself with it.
#![forbid(unsafe_code)]

mod browser;
mod compat;
mod measure;
mod mutants;
mod package;
mod portability;
mod publish;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{batch, interrupt};

use compat::CompatOptions;
use measure::MeasureOptions;
use mutants::MutantsOptions;
use package::PackageOptions;
use portability::PortabilityOptions;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Release tasks of the farcall workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Pack the crates that users need, and build and start a crate that uses the packages.
    Package(PackageOptions),
    /// Call an earlier version of this clone, and have it call this one.
    Compat(CompatOptions),
    /// Check what a release would publish, and in which order. Nothing is published.
    Publish,
    /// Run the README's commands as a new user does, on a bare Debian of every suite. Needs root.
    Portability(PortabilityOptions),
    /// Mutate the pure state machines, and list the mutants that their tests miss.
    Mutants(MutantsOptions),
    /// Measure the code itself: lengths of files, comments, circles of imports, as a table.
    Measure(MeasureOptions),
    /// Call a farcall server from a page in Chromium by grpc-web.
    Browser,
    /// Run the jobs of a file: in a virtual machine, which is given the program that started it.
    #[command(hide = true)]
    Batch {
        /// The file.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => interrupt::report(&error),
    }
}

fn run(task: Task) -> Result<()> {
    interrupt::watch()?;
    match task {
        Task::Package(options) => package::run(&options),
        Task::Compat(options) => compat::run(&options),
        Task::Publish => publish::dry_run(),
        Task::Portability(options) => portability::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Measure(options) => measure::run(&options),
        Task::Browser => browser::run(),
        Task::Batch { file } => batch::run_file(&file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The virtual machine starts this program by the command line that xtask's `batch` writes.
    #[test]
    fn what_the_virtual_machine_starts_is_a_task() {
        let folder = tempfile::tempdir().unwrap();
        let command = batch::write(&[], &folder.path().join("jobs")).unwrap();
        let parsed = Arguments::try_parse_from(command).unwrap();
        assert!(matches!(parsed.task, Task::Batch { .. }));
    }
}
