//! R10: memory to receive into for many idle connections, over what a queue for each would take.

use anyhow::{Context as _, Result, ensure};

use super::caller::{Wait, over_rdma, setting};
use crate::driver::{Bench, Pair};
use crate::figures::{Goal, Part, Sides};
use crate::worker::{Counts, Load, Operation, Span};

/// Connections.
const COUNT: u64 = 256;

/// R10, against two queues that each connection could have: one as deep as the shared one, which is
/// what it could fill when the others are idle, and one as deep as the largest window that it is
/// ever granted.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let (mut same_depth, mut full_window, mut memory) = (Vec::new(), Vec::new(), Sides::new());
    // The sum is the same in every round: more of them would show nothing.
    for _ in 0..bench.effort.round_count.min(2) {
        let mut pair = Pair::start(&over_rdma(bench, Wait::Adaptive), &setting())?;
        pair.load(&Load::new(Operation::Echo, 1000, Span::Calls(1)))?;
        let (_, with_one) = pair.counts()?;
        pair.hold(usize::try_from(COUNT - 1)?)?;
        let (_, with_all) = pair.counts()?;
        let there = count(&with_all, "rdma_connections")?;
        ensure!(there == COUNT, "the server has {there} connections and not {COUNT}");
        let (one, all) = (count(&with_one, RECEIVE)?, count(&with_all, RECEIVE)?);
        let window = count(&with_all, "window_bytes")?;
        same_depth.push(all as f64 / (COUNT * one) as f64);
        full_window.push(all as f64 / (COUNT * window) as f64);
        memory = sides(one, all, window);
    }
    let first = Part::new(&goal.parts[0], same_depth, memory.clone())?;
    Ok(vec![first, Part::new(&goal.parts[1], full_window, memory)?])
}

const RECEIVE: &str = "receive_bytes";

fn sides(one: u64, all: u64, window: u64) -> Sides {
    let kib = |what: &str, bytes: u64| (what.to_owned(), bytes as f64 / 1024.0);
    let shared = [kib("kib_for_1", one), kib("kib_for_256", all)];
    let each = [kib("kib_of_a_full_window", window)];
    Sides::from([("the shared queue".into(), shared.into()), ("a queue each".into(), each.into())])
}

fn count(counts: &Counts, name: &str) -> Result<u64> {
    counts.get(name).copied().with_context(|| format!("the server did not count {name}"))
}
