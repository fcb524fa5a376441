//! R1 and R2: the latency of a small call over that of a bare message there and back.

use anyhow::Result;

use super::SMALL;
use super::caller::{Caller, Wait, over_rdma, over_tcp};
use super::contest::Contest;
use super::contestant::Contestant;
use super::perftest::Perftest;
use crate::driver::Bench;
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// R1: both poll.
pub(super) fn polling(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    measure(bench, goal, Wait::Polling, Perftest::latency(bench, SMALL))
}

/// R2: both wait for events.
pub(super) fn events(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    measure(bench, goal, Wait::Events, Perftest::latency(bench, SMALL).with_events())
}

fn measure(bench: &Bench, goal: &Goal, wait: Wait, tool: Perftest) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span());
    let name = tool.name().to_owned();
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Caller::boxed(bench, &over_rdma(bench, wait), load)?,
        Box::new(tool),
        Caller::boxed(bench, &over_tcp(bench), load)?,
    ];
    let contest = Contest::run(bench, &mut contestants)?;
    Ok(vec![contest.ratio(&goal.parts[0], ("farcall", &[&name]), "p50_us")?])
}
