//! The figures that compare two sides under one load: T1 to T5, and T10 to T14.

use anyhow::Result;

use super::{MIB, SMALL, matrix};
use crate::driver::{Bench, Comparison, LOOPBACK, Metric, Setting, Side};
use crate::figures::{Goal, Part, PartGoal};
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

/// T16: messages of the types that a service from tonic has.
pub(super) fn vectors(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let (shared, copied) = ("farcall, shared", "farcall, copied");
    let farcall = |payload| bench.farcall(LOOPBACK).with_arguments(&["--payload", payload]);
    let sides =
        [farcall("vector"), farcall("shared").named(shared), farcall("copied").named(copied)];
    let load = Load::new(Operation::Upload, MIB, bench.effort.span());
    let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
    let parts = goal.parts.iter().zip([shared, copied]);
    parts.map(|(part, other)| compared.ratio(part, other, Metric::Rate)).collect()
}

/// T5: a stream of small messages from the server.
pub(super) fn stream(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["std"])?;
    let load = Load::new(Operation::Feed, 1 << 10, bench.effort.span());
    let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
    Ok(vec![compared.ratio(&goal.parts[0], "tonic", Metric::Rate)?])
}

/// T10: what threads cost: those of one runtime, which take calls from each other, and those that
/// have a runtime each.
pub(super) fn threads(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(64);
    let (one, each) = ("farcall, a thread a process", "farcall, a runtime a core");
    let shared = Setting::free();
    let cores = shared.threads.to_string();
    let per_core = bench.farcall(LOOPBACK).named(each).with_arguments(&["--cores", &cores]);
    let sides = [
        (bench.farcall(LOOPBACK), shared),
        (per_core, shared.with_threads(0)),
        (bench.farcall(LOOPBACK).named(one), shared.with_threads(0)),
    ];
    let compared = Comparison::measure_each(&sides, &load, &bench.effort)?;
    let parts = goal.parts.iter().zip([sides[0].0.name(), each]);
    parts.map(|(part, side)| compared.ratio_of(side, part, one, Metric::CpuPerCall)).collect()
}

/// T11: a stream of small messages, beside the least that a multiplexer does.
pub(super) fn bare_stream(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Feed, 1 << 10, bench.effort.span());
    against(bench, &goal.parts[0], &load, "mux", Metric::Rate).map(|part| vec![part])
}

/// T12: how long the last of many calls in flight wait.
pub(super) fn tail(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(256);
    against(bench, &goal.parts[0], &load, "mux", Metric::P99).map(|part| vec![part])
}

fn against(
    bench: &Bench,
    part: &PartGoal,
    load: &Load,
    other: &str,
    metric: Metric,
) -> Result<Part> {
    let sides = bench.sides(&[other], &[])?;
    Comparison::measure(&sides, &Setting::free(), load, &bench.effort)?.ratio(part, other, metric)
}

/// T13: tonic's client over a channel of farcall's, and at farcall's port.
pub(super) fn tonics_client(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(64);
    let mut parts = Vec::new();
    for (part, subject) in goal.parts.iter().zip(["tonic-over-farcall", "tonic-at-farcall"]) {
        let sides = [bench.peer(subject)?, bench.peer("tonic")?];
        let compared = Comparison::measure(&sides, &Setting::free(), &load, &bench.effort)?;
        parts.push(compared.ratio(part, "tonic", Metric::CpuPerCall)?);
    }
    Ok(parts)
}

/// T14: what TLS costs a large message and a small one.
pub(super) fn tls(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let farcall = bench.over_tls(bench.farcall(LOOPBACK))?;
    let large = Load::new(Operation::Upload, 64 * MIB, bench.effort.span());
    let small = Load::new(Operation::Echo, SMALL, bench.effort.span());
    let floor = bench.over_tls(bench.built_in("std-tls"))?;
    let figures = [
        (floor, large, Setting::free(), Metric::Rate),
        (bench.farcall(LOOPBACK), small, Setting::one_core(), Metric::P50),
    ];
    let parts = goal.parts.iter().zip(figures);
    parts
        .map(|(part, (other, load, setting, metric))| {
            let name = other.name().to_owned();
            let sides: [Side; 2] = [farcall.clone(), other];
            let compared = Comparison::measure(&sides, &setting, &load, &bench.effort)?;
            compared.ratio(part, &name, metric)
        })
        .collect()
}
