//! Whole runs over simulated RDMA, each made by a seed: clients and a server, small and large
//! calls and streams, long metadata, calls that are given up, deadlines, and faults of the device,
//! on a paused clock, which only its waits move.
//!
//! Of every seed must be true: every call ends, an answer has the right bytes, a run whose faults
//! are harmless fails no call, clients come back after the disturbances from outside, the device
//! was never misused, and in the end no slot, buffer, connection, registration or queue is left.
//!
//! `FARCALL_SIM_SEEDS` says how many seeds to run, 150 by default, and `FARCALL_SIM_FIRST_SEED`
//! which is the first. With `FARCALL_SIM_LEAN` each run is a small one, so that there can be many.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod calls;
mod faults;
mod pest;
mod run;
mod size;

use run::Tally;
use size::Size;

/// Seeds of a plain run: some seconds.
const SEED_COUNT: u64 = 150;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}")))
}

#[test]
fn every_seed_keeps_what_farcall_promises() {
    let first = number("FARCALL_SIM_FIRST_SEED", 0);
    let count = number("FARCALL_SIM_SEEDS", SEED_COUNT);
    let size = Size::from_env();
    let start = std::time::Instant::now();
    let mut tally = Tally::default();
    for seed in first..first + count {
        tally.add(&run::run(seed, size));
    }
    println!("{count} seeds from {first} in {:?}: {tally}", start.elapsed());
    assert!(tally.has_everything() || count < SEED_COUNT, "something never came: {tally}");
}
