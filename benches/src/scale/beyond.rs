//! C6: more connections than a lane has places for. Those beyond get another lane.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::SMALL;
use crate::driver::{Bench, Pair, Sample, medians};
use crate::figures::{Goal, Part, Sides};
use crate::rdma::caller::setting;
use crate::rounds::interleaved;
use crate::statistics::ratios;
use crate::worker::{Counts, Load, Operation};

/// Connections that a lane holds by itself.
const HELD: usize = 256;

/// Connections in all.
const ALL: usize = 320;

const IN_FLIGHT: usize = 64;

/// C6: the rate over all of them, and memory.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let side = bench.farcall(&bench.place.address("auto"));
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(IN_FLIGHT);
    let mut pairs = Vec::new();
    for count in [ALL, HELD] {
        let mut pair = Pair::start(&side, &setting().with_connections(count))?;
        pair.load(&Load { span: bench.effort.warm_up(), ..load })?;
        pairs.push(pair);
    }
    let samples = interleaved(2, bench.effort.round_count, |index| pairs[index].load(&load))?;
    let rates: Vec<Vec<f64>> = samples
        .iter()
        .map(|samples| samples.iter().map(Sample::calls_per_second).collect())
        .collect();
    let mut sides = Sides::new();
    for (count, samples) in [ALL, HELD].into_iter().zip(&samples) {
        let mut values = medians(samples);
        values.insert("connections".to_owned(), count as f64);
        sides.insert(format!("farcall, {count}"), values);
    }
    let (client, with_all) = pairs[0].counts()?;
    add_paths(&mut sides, &client, &with_all)?;
    let (_, with_held) = pairs[1].counts()?;
    drop(pairs);
    let (with_one, kib) = alone(bench)?;
    let receive = receive_bytes(&with_held)? / receive_bytes(&with_one)?;
    let values = [ratios(&rates[0], &rates[1]), vec![receive], vec![kib]];
    let parts = goal.parts.iter().zip(values);
    parts.map(|(part, rounds)| Part::new(part, rounds, sides.clone())).collect()
}

/// Over which path how many connections went, and why the others did not.
fn add_paths(sides: &mut Sides, client: &Counts, server: &Counts) -> Result<()> {
    for (name, count) in client {
        if name.starts_with("over ") || name.starts_with("declined: ") {
            eprintln!("{count} connections {name}");
            let values = BTreeMap::from([("connections".to_owned(), *count as f64)]);
            sides.insert(name.clone(), values);
        }
    }
    let there = server.get("rdma_connections").copied().unwrap_or_default();
    ensure!(there == ALL as u64, "the server has {there} connections on RDMA and not {ALL}");
    Ok(())
}

/// Returns the server's counters with one connection, and the KiB that each further one adds.
fn alone(bench: &Bench) -> Result<(Counts, f64)> {
    let mut pair = Pair::start(&bench.farcall(&bench.place.address("rdma")), &setting())?;
    let (_, counts) = pair.counts()?;
    let resident = |pair: &mut Pair| {
        Ok::<_, anyhow::Error>(pair.server_usage()?.context("no server of its own")?.resident_kib)
    };
    // What only the first ones need is there.
    let warm_up = HELD / 8;
    pair.hold(warm_up)?;
    let before = resident(&mut pair)?;
    let further = HELD - warm_up - 1;
    pair.hold(further)?;
    let grown = resident(&mut pair)?.saturating_sub(before);
    Ok((counts, grown as f64 / further as f64))
}

fn receive_bytes(counts: &Counts) -> Result<f64> {
    let bytes = counts.get("receive_bytes").copied();
    Ok(bytes.context("the server did not count what it receives into")? as f64)
}
