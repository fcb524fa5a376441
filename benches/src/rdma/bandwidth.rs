//! R3 and R4: bytes a second of large calls over those of bare READs.
//!
//! The calls are uploads of memory that is the application's own, which is copied once. Uploads of
//! memory that farcall lent, downloads, uploads without queue pairs for READs, and the same over
//! TCP stand beside them. `ib_read_bw` has one queue pair. It polls by itself, and takes from a
//! software device the processors that it runs on; so it is run waiting for events too, and the
//! better of the two is what farcall is compared with.

use anyhow::Result;

use super::MIB;
use super::caller::{Caller, Wait, over_rdma, over_tcp};
use super::contest::Contest;
use super::contestant::Contestant;
use super::perftest::Perftest;
use crate::driver::Bench;
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// READs that the tool has outstanding, as many as there are calls in R3.
const OUTSTANDING: u32 = 4;

/// R3: several calls in flight, in two sizes.
pub(super) fn several(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sizes = [MIB, 8 * MIB];
    let parts = goal.parts.iter().zip(sizes);
    parts
        .map(|(part, size)| {
            let contest = contest(bench, size, OUTSTANDING as usize)?;
            contest.ratio(part, ("farcall", READS), "mb_per_s")
        })
        .collect()
}

/// R4: one call at a time.
pub(super) fn one(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let contest = contest(bench, 8 * MIB, 1)?;
    Ok(vec![contest.ratio(&goal.parts[0], ("farcall", READS), "mb_per_s")?])
}

const READS: &[&str] = &["ib_read_bw", "ib_read_bw -e"];

fn contest(bench: &Bench, size: usize, in_flight: usize) -> Result<Contest> {
    let load =
        |operation| Load::new(operation, size, bench.effort.span()).with_in_flight(in_flight);
    let (upload, download) = (load(Operation::Upload), load(Operation::Download));
    let ours = over_rdma(bench, Wait::Adaptive);
    let lent = ours.clone().with_arguments(&["--lent"]).named("farcall, lent memory");
    let one_queue = ours.clone().with_arguments(&["--read-queue-pairs", "0"]);
    let one_queue = one_queue.named("farcall, one queue pair");
    let down = ours.clone().named("farcall, downloads");
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Caller::boxed(bench, &ours, upload)?,
        Box::new(Perftest::read_bandwidth(bench, size, OUTSTANDING)),
        Box::new(Perftest::read_bandwidth(bench, size, OUTSTANDING).with_events()),
        Caller::boxed(bench, &lent, upload)?,
        Caller::boxed(bench, &down, download)?,
        Caller::boxed(bench, &one_queue, upload)?,
        Caller::boxed(bench, &over_tcp(bench), upload)?,
    ];
    Contest::run(bench, &mut contestants)
}
