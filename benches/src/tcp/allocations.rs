//! T7: heap allocations of a call, by programs whose allocator counts them.

use anyhow::{Context as _, Result};

use super::SMALL;
use crate::driver::{Bench, Pair, Setting, Side, medians};
use crate::figures::{Goal, Part, Sides};
use crate::rounds::interleaved;
use crate::worker::{Load, Operation, Span};

/// Calls of one measurement. What tables and queues allocate when they grow, and what asking for
/// the count costs, is spread over them.
const CALL_COUNT: u64 = 10_000;

/// Measures the allocations of both processes.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&[], &["mux", "tonic", "tarpc", "capnp"])?;
    let load = Load::new(Operation::Echo, SMALL, Span::Calls(CALL_COUNT));
    let mut pairs = Vec::new();
    for side in sides {
        let counting: Side = bench.counting(side)?;
        let mut pair = Pair::start(&counting, &Setting::free())?;
        pair.load(&load)?;
        pairs.push(pair);
    }
    let measured =
        interleaved(pairs.len(), bench.effort.round_count, |index| pairs[index].load(&load))?;
    let names = pairs.iter().map(|pair| pair.name().to_owned());
    let by_side: Sides = names.zip(measured.iter().map(|samples| medians(samples))).collect();
    let ours = measured.first().context("farcall was not measured")?;
    let rounds = ours
        .iter()
        .map(|sample| sample.allocations_per_call().map(hundredths))
        .collect::<Option<Vec<f64>>>()
        .context("the workers do not count")?;
    Ok(vec![Part::new(&goal.parts[0], rounds, by_side)?])
}

/// Without what is no call's: asking for the count takes a few allocations itself.
fn hundredths(count: f64) -> f64 {
    (count * 100.0).round() / 100.0
}
