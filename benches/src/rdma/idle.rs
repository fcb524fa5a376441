//! R11: what a connected pair costs that has nothing to do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::MIB;
use super::caller::{Wait, over_rdma, setting};
use crate::driver::{Bench, Pair};
use crate::figures::{Goal, Part, Sides};
use crate::worker::{Load, Operation, Span};

/// Length of the idle period, shorter than the 20 s between keepalive's pings. The two counts of
/// the result do not depend on its exact length.
const IDLE: Duration = Duration::from_secs(5);

/// Maximum time that grants and acknowledgements are in flight after the last call.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// Looks in a row, as far apart as below, between which no lane has woken up.
const QUIET_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// R11: processor time of both processes, and wake-ups of both lanes.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let mut pair = Pair::start(&over_rdma(bench, Wait::Adaptive), &setting())?;
    let (mut percent, mut wakeups) = (Vec::new(), Vec::new());
    // Each takes its time, and there is nothing to compare with.
    for _ in 0..bench.effort.round_count.min(3) {
        pair.load(&Load::new(Operation::Echo, 1000, Span::Calls(100)))?;
        pair.load(&Load::new(Operation::Echo, MIB, Span::Calls(4)))?;
        let before = quiet(&mut pair)?;
        let (client, server) = (pair.client_usage()?, pair.server_usage()?.unwrap_or_default());
        let started = Instant::now();
        std::thread::sleep(IDLE);
        let seconds = started.elapsed().as_secs_f64();
        let used = pair.client_usage()?.since(&client).cpu_us()
            + pair.server_usage()?.unwrap_or_default().since(&server).cpu_us();
        percent.push(used as f64 / 1e6 / seconds * 100.0);
        wakeups.push((wakeups_of(&mut pair)? - before) as f64);
    }
    let span = BTreeMap::from([("seconds".to_owned(), IDLE.as_secs_f64())]);
    let sides = Sides::from([("farcall".to_owned(), span)]);
    let first = Part::new(&goal.parts[0], percent, sides.clone())?;
    Ok(vec![first, Part::new(&goal.parts[1], wakeups, sides)?])
}

/// Waits until no lane wakes up any more, and returns how often lanes have.
fn quiet(pair: &mut Pair) -> Result<u64> {
    let end = Instant::now() + SETTLE_LIMIT;
    let (mut count, mut looks) = (wakeups_of(pair)?, 0);
    while looks < QUIET_LOOKS {
        ensure!(Instant::now() < end, "lanes woke up for {} s on end", SETTLE_LIMIT.as_secs());
        std::thread::sleep(LOOK_INTERVAL);
        let now = wakeups_of(pair)?;
        looks = if now == count { looks + 1 } else { 0 };
        count = now;
    }
    Ok(count)
}

fn wakeups_of(pair: &mut Pair) -> Result<u64> {
    let (client, server) = pair.counts()?;
    let both = [client, server].map(|counts| counts.get("wakeups").copied());
    ensure!(both.iter().all(Option::is_some), "a side did not count its wake-ups");
    Ok(both.into_iter().flatten().sum())
}
