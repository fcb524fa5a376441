//! The budget of instructions of a call: user and kernel, client, server and device together.
//!
//! It is counted in the virtual machine while time counts instructions (`cargo xtask vm --icount`),
//! where the same work takes the same time however busy the host is. So this is no latency, and a
//! regression shows without timing anything. To lower a budget, run `cargo xtask test --only
//! vm-budgets` and put the number that it prints into the table below.
//!
//! The C library and libibverbs of the machine are part of what is counted: `ib_send_lat` takes 2 %
//! more instructions on Debian 13 than on 12. So each budget is scaled by what the tool takes in
//! the same boot.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use super::caller::{Wait, over_rdma, setting};
use super::contestant::Contestant as _;
use super::perftest::Perftest;
use super::{MIB, SMALL};
use crate::driver::{Bench, Effort, Pair, Place};
use crate::worker::{Load, Operation, Span};

/// The tool's cost of a round trip, which measures a machine's libraries.
#[derive(Debug)]
struct Yardstick {
    name: &'static str,
    size: usize,
    /// Round trips that are counted.
    count: u64,
    /// Instructions of a round trip on Debian 12, where the budgets were measured.
    instructions: f64,
}

const SHORT: Yardstick =
    Yardstick { name: "ib_send_lat -e, 64 B", size: SMALL, count: 2000, instructions: 66_530.0 };

const LONG: Yardstick =
    Yardstick { name: "ib_send_lat -e, 1 MiB", size: MIB, count: 20, instructions: 21_037_570.0 };

/// The budget of a call.
#[derive(Debug)]
struct Budget {
    name: &'static str,
    operation: Operation,
    size: usize,
    in_flight: usize,
    /// Calls that are counted at a time; as many go before them.
    calls: u64,
    /// Instructions of one call where the tool takes what its yardstick says.
    instructions: f64,
    yardstick: &'static Yardstick,
    /// The commit that the number was measured at.
    measured_at: &'static str,
}

/// All budgets, with events and not polling: what waits does not count there.
const BUDGETS: &[Budget] = &[
    Budget {
        name: "64 B, one at a time",
        operation: Operation::Echo,
        size: SMALL,
        in_flight: 1,
        calls: 1000,
        // 87,500 before connections had a flight recorder, calls an account for those that ask, and
        // devices threads for their commands.
        instructions: 92_000.0,
        yardstick: &SHORT,
        measured_at: "1001d58",
    },
    Budget {
        name: "64 B, 16 in flight",
        operation: Operation::Echo,
        size: SMALL,
        in_flight: 16,
        calls: 3200,
        instructions: 54_700.0,
        yardstick: &SHORT,
        measured_at: "1001d58",
    },
    Budget {
        name: "1 MiB up, one at a time",
        operation: Operation::Upload,
        size: MIB,
        in_flight: 1,
        calls: 20,
        instructions: 10_875_000.0,
        yardstick: &LONG,
        measured_at: "53a2c19",
    },
];

/// By how much a call may exceed its budget. Five boots of the same programs differed by 0.5 % with
/// many calls in flight, and by less than 0.1 % otherwise.
const TOLERANCE: f64 = 0.05;

/// Number of times that calls are counted. The least count is taken, because waiting for a page of
/// a file only adds to it.
const REPEATS: usize = 3;

/// Arguments of `farcall-bench budgets`.
#[derive(Debug, Args)]
pub struct BudgetOptions {
    /// Duration of an instruction in the virtual machine's time, in nanoseconds.
    #[arg(long)]
    instruction_nanos: f64,
    /// Devices to use.
    #[command(flatten)]
    place: Place,
}

impl BudgetOptions {
    /// Counts, and prints a line for each budget.
    ///
    /// # Errors
    ///
    /// Returns an error if a call cannot be made, or takes more than its budget.
    pub fn run(&self) -> Result<()> {
        ensure!(self.instruction_nanos > 0.0, "an instruction takes some time");
        let bench = Bench::at(Effort::QUICK, self.place.clone(), None)?;
        let mut exceeded = Vec::new();
        for yardstick in [&SHORT, &LONG] {
            let scale = self.scale(&bench, yardstick)?;
            let budgets = BUDGETS.iter().filter(|it| it.yardstick.name == yardstick.name);
            for budget in budgets {
                let (line, fits) = budget.verdict(self.count(&bench, budget)?, scale);
                println!("{line}");
                exceeded.extend((!fits).then_some(budget.name));
            }
        }
        match exceeded.is_empty() {
            true => Ok(()),
            false => bail!("more instructions than the budget has: {}", exceeded.join("; ")),
        }
    }

    /// Returns the tool's instructions here, as a multiple of those where the budgets were
    /// measured.
    fn scale(&self, bench: &Bench, yardstick: &Yardstick) -> Result<f64> {
        let Yardstick { name, size, count, instructions } = *yardstick;
        let mut tool = Perftest::latency(bench, size).with_events().with_count(count);
        let values = tool.measure().with_context(|| format!("measuring {name}"))?;
        let here = values["p50_us"] * 1e3 / self.instruction_nanos;
        let scale = here / instructions;
        println!("{name:<24} {here:>12.0} instructions, {scale:.3} times those of Debian 12");
        Ok(scale)
    }

    /// The instructions of one call.
    fn count(&self, bench: &Bench, budget: &Budget) -> Result<f64> {
        let mut pair = Pair::start(&over_rdma(bench, Wait::Events), &setting())?;
        let load = Load::new(budget.operation, budget.size, Span::Calls(budget.calls));
        let load = load.with_in_flight(budget.in_flight);
        pair.load(&load)?;
        let mut least = f64::INFINITY;
        for _ in 0..REPEATS {
            let nanos = 1e9 / pair.load(&load)?.calls_per_second();
            least = least.min(nanos / self.instruction_nanos);
        }
        Ok(least)
    }
}

impl Budget {
    /// A line that tells how the count stands to the budget times `scale`, and whether it fits.
    fn verdict(&self, instructions: f64, scale: f64) -> (String, bool) {
        let Self { name, measured_at, .. } = self;
        let budget = self.instructions * scale;
        let over = (instructions / budget - 1.0) * 100.0;
        let mut line = format!(
            "{name:<24} {instructions:>12.0} instructions, budget {budget:.0} of {measured_at}: \
             {over:+.1} %"
        );
        let fits = instructions <= budget * (1.0 + TOLERANCE);
        let remark = match fits {
            false => "; EXCEEDED",
            true if instructions < budget * (1.0 - TOLERANCE) => "; the budget can be lowered",
            true => "",
        };
        // Writing to a string cannot fail.
        let _ = write!(line, "{remark}");
        (line, fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_a_tolerance_and_tells_when_it_is_too_large() {
        let budget = Budget { instructions: 1000.0, measured_at: "abc", ..BUDGETS[0] };
        let verdict = |instructions| budget.verdict(instructions, 1.0);
        assert!(verdict(1049.0).1 && verdict(951.0).1 && verdict(500.0).1);
        let (line, fits) = verdict(1051.0);
        assert!(!fits && line.contains("+5.1 %") && line.ends_with("EXCEEDED"), "{line}");
        assert!(verdict(900.0).0.ends_with("can be lowered"));
        assert!(verdict(1000.0).0.ends_with("budget 1000 of abc: +0.0 %"));
        // Where the tool takes 2 % more, so may a call.
        let (line, fits) = budget.verdict(1071.0, 1.02);
        assert!(fits && line.ends_with("budget 1020 of abc: +5.0 %"), "{line}");
        assert!(!budget.verdict(1072.0, 1.02).1);
    }
}
