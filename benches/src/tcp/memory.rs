//! T6 and T15: the server's memory for an idle connection, of farcall's own protocol and of gRPC.

use anyhow::{Context as _, Result, ensure};

use crate::driver::{Bench, Pair, Setting, Side};
use crate::figures::{Goal, Part, Sides};
use crate::rounds::interleaved;
use crate::statistics::Spread;

/// Connections before those that are counted, so that what only the first ones need is there.
const WARM_UP_COUNT: usize = 64;

/// Connections that are counted: enough for pages and growing tables to be a small part of them.
const COUNT: usize = 1000;

/// T6: farcall's own protocol.
pub(super) fn own_protocol(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    measure(bench, goal, &bench.sides(&[], &["mux", "tonic", "tarpc", "capnp"])?)
}

/// T15: connections of tonic's client to the gRPC port, and to tonic's own server.
pub(super) fn grpc(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    measure(bench, goal, &[bench.peer("tonic-at-farcall")?, bench.peer("tonic")?])
}

/// Measures the growth of the server's resident memory over many connections, each of which has
/// made one call. Every measurement has a server of its own, since memory that was used once is
/// seldom given back. The first of `sides` is the one that has the goal.
fn measure(bench: &Bench, goal: &Goal, sides: &[Side]) -> Result<Vec<Part>> {
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
