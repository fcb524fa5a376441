//! C2: what idle connections cost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{connections, descriptors};
use crate::driver::{Bench, Pair, Setting, Side};
use crate::figures::{Goal, Part, Sides};
use crate::rounds::interleaved;
use crate::statistics::Spread;

/// Connections before those that are counted, so that what only the first ones need is there.
const WARM_UP_COUNT: usize = 64;

/// Length of the idle period in which processor time is counted.
const IDLE: Duration = Duration::from_secs(2);

/// Rounds at most: memory differs little from one to the next.
const ROUNDS_MAX: usize = 3;

/// The numbers of a side's round.
struct Idle {
    kib: f64,
    percent: f64,
}

/// C2: the server's memory for a connection, and what both processes do meanwhile.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["mux", "tarpc", "capnp"])?;
    let (mut ours, mut all) = (BTreeMap::new(), Sides::new());
    for part in goal.parts {
        let (count, _) = connections(part.name)?;
        if ours.contains_key(&count) {
            continue;
        }
        descriptors::require(count + WARM_UP_COUNT)?;
        let round_count = bench.effort.round_count.min(ROUNDS_MAX);
        let mut measured =
            interleaved(sides.len(), round_count, |index| round(&sides[index], count))?;
        for (side, rounds) in sides.iter().zip(&measured) {
            all.insert(format!("{}, {count}", side.name()), values(rounds, count)?);
        }
        ours.insert(count, measured.swap_remove(0));
    }
    let part = |part: &'static _| {
        let crate::figures::PartGoal { name, .. } = part;
        let (count, what) = connections(name)?;
        let value = |idle: &Idle| match what {
            "memory of the server" => Ok(idle.kib),
            "processor time" => Ok(idle.percent),
            other => bail!("{other} is measured nowhere"),
        };
        let rounds = ours[&count].iter().map(value).collect::<Result<Vec<f64>>>()?;
        Part::new(part, rounds, all.clone())
    };
    goal.parts.iter().map(part).collect()
}

fn round(side: &Side, count: usize) -> Result<Idle> {
    let mut pair = Pair::start(side, &Setting::free())?;
    pair.hold(WARM_UP_COUNT)?;
    let before = server(&mut pair)?.resident_kib;
    pair.hold(count)?;
    let (server_before, client_before) = (server(&mut pair)?, pair.client_usage()?);
    let started = Instant::now();
    std::thread::sleep(IDLE);
    let seconds = started.elapsed().as_secs_f64();
    let used = server(&mut pair)?.since(&server_before).cpu_us()
        + pair.client_usage()?.since(&client_before).cpu_us();
    let after = server_before.resident_kib;
    ensure!(after > before, "{count} connections took no memory: {before} KiB, {after} KiB");
    let kib = (after - before) as f64 / count as f64;
    Ok(Idle { kib, percent: used as f64 / 1e6 / seconds * 100.0 })
}

fn server(pair: &mut Pair) -> Result<crate::worker::Usage> {
    pair.server_usage()?.context("no server of its own")
}

fn values(rounds: &[Idle], count: usize) -> Result<BTreeMap<String, f64>> {
    let median = |of: fn(&Idle) -> f64| {
        let values: Vec<f64> = rounds.iter().map(of).collect();
        Spread::of(&values).map(|spread| spread.median).context("a side without rounds")
    };
    Ok(BTreeMap::from([
        ("connections".to_owned(), count as f64),
        ("server_kib_per_connection".to_owned(), median(|idle| idle.kib)?),
        ("idle_percent".to_owned(), median(|idle| idle.percent)?),
    ]))
}
