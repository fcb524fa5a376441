//! The workers of `farcall-bench` again, with every heap allocation counted: too slow to measure
//! anything else.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::{Parser, Subcommand};
use farcall_benches::subjects::{self, BuiltIn};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[derive(Parser)]
#[command(about = "A worker of farcall-bench that counts heap allocations")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A server or a client that is told by lines what to do.
    Worker(BuiltIn),
}

fn main() -> Result<()> {
    let Command::Worker(options) = Arguments::parse().command;
    let _profiler = dhat::Profiler::builder().testing().build();
    subjects::run(&options, Some(|| dhat::HeapStats::get().total_blocks))
}
