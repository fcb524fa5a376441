//! C1 and C5: the same calls in flight over ever more connections, which take turns.

use anyhow::{Result, bail};

use super::{SMALL, TONIC_OVER_TCP, connections, descriptors, on_devices};
use crate::driver::{Bench, Comparison, Metric, Setting, Side};
use crate::figures::{Goal, Part, Sides};
use crate::rdma::caller::setting;
use crate::worker::{Load, Operation};

/// Calls in flight, whatever the number of connections: what more of them cost is not that there is
/// more to do.
const IN_FLIGHT: usize = 64;

/// C1, against tonic.
pub(super) fn over_tcp(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["mux", "tarpc", "capnp"])?;
    measure(bench, goal, (&sides, "tonic"), Setting::free())
}

/// C5, against tonic over TCP on the same cable.
pub(super) fn over_rdma(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    measure(bench, goal, (&on_devices(bench)?, TONIC_OVER_TCP), setting())
}

fn measure(
    bench: &Bench,
    goal: &Goal,
    (sides, to): (&[Side], &str),
    setting: Setting,
) -> Result<Vec<Part>> {
    let (mut rounds, mut all) = (Vec::new(), Sides::new());
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(IN_FLIGHT);
    let mut parts = goal.parts.iter().peekable();
    while let Some(part) = parts.peek() {
        let (count, _) = connections(part.name)?;
        descriptors::require(count)?;
        let setting = setting.with_connections(count);
        let compared = Comparison::measure(sides, &setting, &load, &bench.effort)?;
        for (name, mut values) in compared.medians() {
            values.insert("connections".to_owned(), count as f64);
            all.insert(format!("{name}, {count}"), values);
        }
        let is_measured = |name| connections(name).is_ok_and(|(other, _)| other == count);
        while let Some(part) = parts.next_if(|part| is_measured(part.name)) {
            rounds.push(compared.ratios(to, metric(part.name)?)?);
        }
    }
    let parts = goal.parts.iter().zip(rounds);
    parts.map(|(part, rounds)| Part::new(part, rounds, all.clone())).collect()
}

fn metric(name: &'static str) -> Result<Metric> {
    Ok(match connections(name)?.1 {
        "calls/s" => Metric::Rate,
        "CPU" => Metric::CpuPerCall,
        "p99" => Metric::P99,
        other => bail!("{other} is measured nowhere"),
    })
}
