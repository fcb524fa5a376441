//! The figures R1 to R11: RDMA devices, on a host that has them or in the virtual machine.
//!
//! A figure is a *contest*: farcall's processes and the tools it is compared with take turns, round
//! by round, and a round in which something disturbed the machine is made again. `perftest` and
//! `ucx` run the tools, and `perftest_table` and `ucx_table` read what they print; `caller` is
//! farcall. The other modules are the figures. `budget` is no figure: it counts instructions.

mod bandwidth;
mod budget;
pub(crate) mod caller;
mod contest;
mod contestant;
mod copies;
mod idle;
mod latency;
mod listening;
mod perftest;
mod perftest_table;
mod rate;
mod receive_memory;
mod scope;
mod system_calls;
mod tool;
mod ucx;
mod ucx_table;

pub use budget::BudgetOptions;

use anyhow::{Result, bail};

use crate::driver::Bench;
use crate::figures::{Goal, Part};

/// The length of a small payload.
const SMALL: usize = 64;

const MIB: usize = 1 << 20;

/// Measures a figure of this group.
///
/// # Errors
///
/// Returns an error if it cannot be measured.
pub fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    match goal.number {
        "R1" => latency::polling(bench, goal),
        "R2" => latency::events(bench, goal),
        "R3" => bandwidth::several(bench, goal),
        "R4" => bandwidth::one(bench, goal),
        "R5" => rate::small(bench, goal),
        "R6" => system_calls::measure(bench, goal),
        "R7" => ucx::compare(bench, goal),
        "R8" => scope::measure(bench, goal),
        "R9" => copies::measure(bench, goal),
        "R10" => receive_memory::measure(bench, goal),
        "R11" => idle::measure(bench, goal),
        other => bail!("nothing here measures {other}"),
    }
}
