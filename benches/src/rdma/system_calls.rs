//! R6: system calls of a small call.

use anyhow::{Context as _, Result};

use super::SMALL;
use super::caller::{Wait, over_rdma, setting};
use crate::driver::{Bench, Pair, system_calls};
use crate::figures::{Goal, Part, Sides};
use crate::worker::{Load, Operation};

/// R6: by the client and by the server, one after the other, since `perf` counts for one process.
/// Both wait for events, which costs more of them than polling.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(16);
    let events = count(bench, Wait::Events, &load)?;
    let adaptive = count(bench, Wait::Adaptive, &load)?;
    let parts = goal.parts.iter().zip(events.into_iter().zip(adaptive));
    parts
        .map(|(part, (events, adaptive))| {
            let adaptive = adaptive.first().map(|&count| ("system_calls".to_owned(), count));
            let name = "with the usual spin before it sleeps".to_owned();
            Part::new(part, events, Sides::from([(name, adaptive.into_iter().collect())]))
        })
        .collect()
}

/// The system calls for each call, round by round, of the client and of the server.
fn count(bench: &Bench, wait: Wait, load: &Load) -> Result<[Vec<f64>; 2]> {
    let mut pair = Pair::start(&over_rdma(bench, wait), &setting())?;
    pair.load(&Load { span: bench.effort.warm_up(), ..*load })?;
    let (client, server) = pair.ids();
    let server = server.context("a server in a process of its own")?;
    let mut counts = [Vec::new(), Vec::new()];
    // They hardly differ.
    for _ in 0..bench.effort.round_count.min(3) {
        for (id, counts) in [client, server].into_iter().zip(&mut counts) {
            let (sample, count) = system_calls::count(id, || pair.load(load))?;
            counts.push(count as f64 / sample.client.count as f64);
        }
    }
    Ok(counts)
}
