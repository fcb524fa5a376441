//! Puts, reads and deletes values of all sizes over every transport, checks every byte, and prints
//! a table.
//!
//! `run` serves and calls one address, `workload` is what the client does there, `row` makes a
//! line of the table, and `network_counters` tells where the bytes went. The service and its
//! stub are the example's: here is what shows them.
#![forbid(unsafe_code)]

mod network_counters;
mod pair;
mod path;
mod row;
mod run;
mod workload;

use clap::Parser;

use row::{Row, Speeds};
use run::{Plan, run};

/// Serves etcd's key-value service and calls it, over one address after the other; every byte is
/// checked. p50 and p99 are those of puts and ranges, one at a time; what farcall copied is
/// counted on both sides.
#[derive(Debug, Parser)]
struct Arguments {
    /// Addresses to serve and to call.
    #[arg(default_values = ["inproc://kv", "tcp://127.0.0.1:0"])]
    addresses: Vec<String>,
    /// The most puts, and as many ranges, with values of one length.
    #[arg(long, default_value_t = 200)]
    calls: u64,
    /// The lengths of values in bytes; 64 B to 64 MiB by default.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Mark times and rates, which mean nothing where the processor is emulated.
    #[arg(long)]
    emulated: bool,
}

const SIZES: [usize; 4] = [64, 64 << 10, 1 << 20, 64 << 20];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { addresses, calls, sizes, emulated } = Arguments::parse();
    let value_lens = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    let speeds = if emulated { Speeds::Emulated } else { Speeds::OfThisHost };
    let plan = Plan { value_lens, rounds_max: calls.max(1), speeds };
    println!("{}", Row::head());
    for address in &addresses {
        run(address, &plan).await?;
    }
    println!("{}", speeds.legend());
    Ok(())
}
