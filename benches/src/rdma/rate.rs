//! R5: small calls a second over half of the bare messages a second, since a call is two.

use anyhow::Result;

use super::SMALL;
use super::caller::{Caller, Wait, over_rdma, over_tcp};
use super::contest::Contest;
use super::contestant::Contestant;
use super::perftest::Perftest;
use crate::driver::Bench;
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// R5. The better of the tool polling and the tool waiting for events counts.
pub(super) fn small(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(64);
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Caller::boxed(bench, &over_rdma(bench, Wait::Adaptive), load)?,
        Box::new(Perftest::send_rate(bench, SMALL)),
        Box::new(Perftest::send_rate(bench, SMALL).with_events()),
        Caller::boxed(bench, &over_tcp(bench), load)?,
    ];
    let contest = Contest::run(bench, &mut contestants)?;
    let theirs: &[&str] = &["ib_send_bw", "ib_send_bw -e"];
    Ok(vec![contest.ratio(&goal.parts[0], ("farcall", theirs), "calls_per_s")?])
}
