//! Rows in which a process or a device goes away.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pair::{LOAD, Pair, Served, read};
use crate::hardware::host::SHORT;
use crate::hardware::outcome::{Bound, Outcome, sum_after};

pub(super) fn closes(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "--state")?;
    let small = "--size 64 --warm-up 0 --calls 200";
    // The first large calls make pools, which stay.
    let large = "--operation download --size 1048576 --warm-up 0 --in-flight 4 --calls";
    served.call(&format!("{large} 8"))?;
    let before = pair.b.pinned_kib()?;
    let count = pair.pick(200, 6);
    let script = format!(
        r#"for _ in $(seq {count}); do
            timeout -s KILL 1 "$bin/farcall-bench" client {} {large} 1000000 >/dev/null 2>&1
        done; true"#,
        served.address
    );
    pair.a.run(&script, Duration::from_secs(2 * count + 60))?;
    read(&mut outcome, &served.call(small)?, "p50 ")?;
    let mut left = Left::read(pair)?;
    // The server notices the last of them by a timeout of its device.
    for _ in 0..60 {
        if left.pinned_kib <= before * 1.1 && left.missing() == 0.0 {
            break;
        }
        thread::sleep(Duration::from_secs(1));
        // A lane takes receives for missing until it has received something since.
        read(&mut outcome, &served.call("--size 64 --warm-up 0 --calls 20")?, "p50 ")?;
        left = Left::read(pair)?;
    }
    outcome.print(&left.state);
    let ratio = left.pinned_kib / before;
    outcome.measure("pinned, after / before", ratio, "", Some(Bound::AtMost(1.1)));
    let events = sum_after(&left.state, "LastReceiveReached ");
    outcome.measure("queue pairs whose last receive was reported", events, "", None);
    let lost = sum_after(&left.state, "lost ");
    outcome.measure("receive slots lost with queue pairs", lost, "", None);
    let reclaimed = sum_after(&left.state, "reclaimed ");
    outcome.measure("of these, reclaimed", reclaimed, "", None);
    outcome.measure("receive slots missing", left.missing(), "", None);
    if left.missing() > 0.0 {
        outcome.fail("receive slots are missing");
    }
    Ok(outcome)
}

/// Memory and receive slots of the server after connections ended.
struct Left {
    pinned_kib: f64,
    state: String,
}

impl Left {
    fn read(pair: &Pair) -> Result<Self> {
        Ok(Self { pinned_kib: pair.b.pinned_kib()?, state: pair.b.state()? })
    }

    fn missing(&self) -> f64 {
        sum_after(&self.state, "missing ")
    }
}

pub(super) fn killed(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "--state")?;
    let arguments = "--size 64 --warm-up 0 --millis 60000";
    let (called, (before, after)) = served.call_during(arguments, |has_ended| {
        served.until_connected(has_ended)?;
        let before = Instant::now();
        pair.b.stop()?;
        Ok((before, Instant::now()))
    })?;
    match called.line {
        Ok(line) => outcome.fail(format!("all calls were answered: {line}")),
        Err(error) => outcome.print(format!("{error:#}")),
    }
    // The server dies between the two.
    let bound = (!pair.is_short).then_some(Bound::AtMost(1.0));
    let least = called.at.saturating_duration_since(after).as_secs_f64();
    outcome.measure("from the kill to the client's end, at least", least, "s", bound);
    let most = called.at.saturating_duration_since(before).as_secs_f64();
    outcome.measure("with the time of ssh, at most", most, "s", None);
    Ok(outcome)
}

pub(super) fn firmware(pair: &Pair) -> Result<Outcome> {
    let [_, device] = pair.devices()?;
    if !device.starts_with("mlx5") || pair.b.run("command -v mlxfwreset", SHORT).is_err() {
        return Ok(Outcome::skipped("B has no mlx5 device with mlxfwreset"));
    }
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let reset = format!(
        "mlxfwreset -y -d $(basename $(readlink /sys/class/infiniband/{device}/device)) reset"
    );
    let arguments = "--size 64 --warm-up 0 --millis 60000";
    let (called, printed) = served.call_during(arguments, |_| pair.b.run(&reset, LOAD))?;
    outcome.print(printed);
    outcome.print(called.line.unwrap_or_else(|error| format!("calls in flight failed: {error:#}")));
    read(&mut outcome, &served.call("--size 64 --warm-up 0 --calls 200")?, "p50 ")?;
    Ok(outcome)
}
