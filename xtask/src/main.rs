//! `cargo xtask`: what this workspace needs beyond cargo. It builds without any system library, because it is what
//! installs them.
#![forbid(unsafe_code)]

mod bounded;
mod interrupt;
mod kernel;
mod setup;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use setup::Purpose;
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
    /// Run a command in the Soft-RoCE virtual machine; its exit status becomes ours (124: time is over, 125: none).
    Vm(VmOptions),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if interrupt::requested() { interrupt::EXIT_CODE } else { 1 })
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    interrupt::watch()?;
    match task {
        Task::Setup => {
            setup::ensure(&[Purpose::Build, Purpose::Checks, Purpose::Vm])?;
            eprintln!("xtask: everything is there");
            Ok(ExitCode::SUCCESS)
        }
        Task::Vm(options) => Ok(ExitCode::from(vm::run(&options)?.exit_code())),
    }
}
