//! The figures that compare farcall with one side under one load: T1 to T5.

use anyhow::Result;

use super::{MIB, SMALL, matrix};
use crate::driver::{Bench, Comparison, Metric, Setting};
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// T1: what a call costs when nothing overlaps, over the floor.
pub(super) fn latency(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["std"], &["mux", "tonic", "tarpc", "capnp"])?;
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span());
    let compared = Comparison::measure(&sides, &Setting::one_core(), &load, &bench.effort)?;
    let mut part = compared.ratio(&goal.parts[0], "std", Metric::P50)?;
    part.sides.extend(matrix::system_calls(bench, &Setting::one_core(), &load)?);
    Ok(vec![part])
}

/// T2: processor time for a call under load.
pub(super) fn cpu(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["std", "mux", "tarpc", "capnp"])?;
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(64);
    let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
    let mut part = compared.ratio(&goal.parts[0], "tonic", Metric::CpuPerCall)?;
    part.sides.extend(matrix::system_calls(bench, &Setting::free(), &load)?);
    Ok(vec![part])
}

/// T3: calls a second, many in flight.
pub(super) fn rate(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic", "tarpc"], &["std", "mux", "capnp"])?;
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(256);
    let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
    let mut over_tonic = compared.ratio(&goal.parts[0], "tonic", Metric::Rate)?;
    over_tonic.sides.extend(matrix::measure(bench, &sides)?);
    Ok(vec![over_tonic, compared.ratio(&goal.parts[1], "tarpc", Metric::Rate)?])
}

/// T4: large messages, each way, in two sizes.
pub(super) fn large(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let loads = [
        (Operation::Upload, MIB),
        (Operation::Upload, 64 * MIB),
        (Operation::Download, MIB),
        (Operation::Download, 64 * MIB),
    ];
    let others = ["mux", "tonic", "tonic-tuned", "tarpc", "capnp"];
    let mut parts = Vec::new();
    for (part, (operation, size)) in goal.parts.iter().zip(loads) {
        let sides = bench.sides(&["std"], &others)?;
        let load = Load::new(operation, size, bench.effort.span());
        let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
        parts.push(compared.ratio(part, "std", Metric::Rate)?);
    }
    Ok(parts)
}

/// T5: a stream of small messages from the server.
pub(super) fn stream(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["std"])?;
    let load = Load::new(Operation::Feed, 1 << 10, bench.effort.span());
    let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
    Ok(vec![compared.ratio(&goal.parts[0], "tonic", Metric::Rate)?])
}
