//! T6: what an idle connection costs the server.

use anyhow::{Context as _, Result, ensure};

use crate::driver::{Bench, Pair, Setting, Side};
use crate::figures::{Goal, Part, Sides};
use crate::rounds::interleaved;
use crate::statistics::Spread;

/// Connections before those that are counted, so that what only the first ones need is there.
const WARM_UP_COUNT: usize = 64;

/// Connections that are counted: enough for pages and growing tables to be a small part of them.
const COUNT: usize = 1000;

/// Measures the growth of the server's resident memory over many connections, each of which has
/// made one call. Every measurement has a server of its own, since memory that was used once is
/// seldom given back.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&[], &["mux", "tonic", "tarpc", "capnp"])?;
    let measured = interleaved(sides.len(), bench.effort.round_count, |index| kib(&sides[index]))?;
    let mut by_side = Sides::new();
    for (side, rounds) in sides.iter().zip(&measured) {
        let spread = Spread::of(rounds).context("a side without rounds")?;
        let values = [("server_kib_per_connection".to_owned(), spread.median)];
        by_side.insert(side.name().to_owned(), values.into());
    }
    let ours = measured.into_iter().next().context("farcall was not measured")?;
    Ok(vec![Part::new(&goal.parts[0], ours, by_side)?])
}

fn kib(side: &Side) -> Result<f64> {
    let mut pair = Pair::start(side, &Setting::free())?;
    pair.hold(WARM_UP_COUNT)?;
    let before = pair.server_usage()?.context("no server of its own")?.resident_kib;
    pair.hold(COUNT)?;
    let after = pair.server_usage()?.context("no server of its own")?.resident_kib;
    ensure!(after > before, "{COUNT} connections took no memory: {before} KiB, {after} KiB");
    Ok((after - before) as f64 / COUNT as f64)
}
