//! The figures T1 to T16: TCP over loopback, on the host.

mod allocations;
mod matrix;
mod memory;
mod neighbours;
mod ratios;

use anyhow::{Result, bail};

use crate::driver::Bench;
use crate::figures::{Goal, Part};

/// The length of a small payload.
const SMALL: usize = 64;

const MIB: usize = 1 << 20;

/// Measures a figure of this group.
///
/// # Errors
///
/// Returns an error if it cannot be measured.
pub fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    match goal.number {
        "T1" => ratios::latency(bench, goal),
        "T2" => ratios::cpu(bench, goal),
        "T3" => ratios::rate(bench, goal),
        "T4" => ratios::large(bench, goal),
        "T5" => ratios::stream(bench, goal),
        "T6" => memory::own_protocol(bench, goal),
        "T7" => allocations::measure(bench, goal),
        "T8" => neighbours::measure(bench, goal),
        "T10" => ratios::threads(bench, goal),
        "T11" => ratios::bare_stream(bench, goal),
        "T12" => ratios::tail(bench, goal),
        "T13" => ratios::tonics_client(bench, goal),
        "T14" => ratios::tls(bench, goal),
        "T15" => memory::grpc(bench, goal),
        "T16" => ratios::vectors(bench, goal),
        other => bail!("nothing here measures {other}"),
    }
}
