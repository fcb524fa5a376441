//! R8: what a key for each transfer costs a large call.
//!
//! Keys for each transfer are memory windows, which can bring down Soft-RoCE's kernel. Both sides
//! have to ask for them there, and the driver measures this last, or in a machine of its own.

use anyhow::Result;

use super::MIB;
use super::caller::{Caller, Wait, over_rdma};
use super::contest::Contest;
use super::contestant::Contestant;
use crate::driver::Bench;
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// R8: one call at a time, by its median.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let load = Load::new(Operation::Upload, MIB, bench.effort.span());
    let side = |scope| {
        let side = over_rdma(bench, Wait::Adaptive).with_arguments(&["--rkey-scope", scope]);
        side.named(scope)
    };
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Caller::boxed(bench, &side("window"), load)?,
        Caller::boxed(bench, &side("region"), load)?,
    ];
    let contest = Contest::run(bench, &mut contestants)?;
    Ok(vec![contest.ratio(&goal.parts[0], ("window", &["region"]), "p50_us")?])
}
