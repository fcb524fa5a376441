//! T8: what large messages on the same connection cost a small call.

use anyhow::{Context as _, Result};

use super::{MIB, SMALL};
use crate::driver::{Bench, Pair, Sample, Setting, Side, medians};
use crate::figures::{Goal, Part, PartGoal, Sides};
use crate::rounds::interleaved;
use crate::statistics::ratios;
use crate::worker::{Load, Operation, Span};

/// The shortest measurement: some large messages have to pass in it.
const MILLIS_MIN: u64 = 1000;

/// Measures small calls one after the other, alone and beside a large message each way: with as
/// many threads in each process as there are cores, and with one.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&[], &["mux", "tonic", "tonic-tuned", "tarpc", "capnp"])?;
    let settings = [Setting::free(), Setting::free().with_threads(0)];
    let parts = goal.parts.iter().zip(settings);
    parts.map(|(part, setting)| measure_part(bench, part, &sides, &setting)).collect()
}

fn measure_part(bench: &Bench, part: &PartGoal, sides: &[Side], setting: &Setting) -> Result<Part> {
    let mut by_side = Sides::new();
    let mut ours = None;
    for side in sides {
        let [alone, beside] = samples(bench, side, setting)?;
        let p99 = |samples: &[Sample]| -> Vec<f64> {
            samples.iter().map(|sample| sample.client.p99_us).collect()
        };
        ours.get_or_insert_with(|| ratios(&p99(&beside), &p99(&alone)));
        by_side.insert(format!("{}, alone", side.name()), medians(&alone));
        by_side.insert(format!("{}, beside 64 MiB", side.name()), medians(&beside));
    }
    Part::new(part, ours.context("farcall was not measured")?, by_side)
}

fn samples(bench: &Bench, side: &Side, setting: &Setting) -> Result<[Vec<Sample>; 2]> {
    let span = Span::Millis(bench.effort.millis.max(MILLIS_MIN));
    let alone = Load::new(Operation::Echo, SMALL, span);
    let loads = [alone, alone.with_beside(64 * MIB)];
    let mut pair = Pair::start(side, setting)?;
    for load in &loads {
        pair.load(load)?;
    }
    let measured = interleaved(2, bench.effort.round_count, |index| pair.load(&loads[index]))?;
    measured.try_into().map_err(|_| anyhow::anyhow!("two loads give two lists"))
}
