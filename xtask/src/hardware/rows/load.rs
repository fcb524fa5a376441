//! Rows that measure loads.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::pair::{LOAD_MILLIS, Pair, Served, read};
use crate::hardware::host::{Host, SHORT};
use crate::hardware::outcome::{Bound, Outcome};

/// Memory that a connection locks on mlx5 with the default settings, in KiB: the sums of
/// `rpc-transport-rdma/src/worker/sizing.rs`.
///
/// - Messages: 96 + 1 requests of 320 bytes, a head of 192 and 128 for 124 bytes inline. These
///   31,040 bytes become the next power of two, 32 KiB.
/// - READs: 2 queue pairs of 8 + 1 requests of 256 bytes, 4 KiB each.
const CONNECTION_KIB: f64 = 32.0 + 2.0 * 4.0;

/// Memory that a lane locks on mlx5 beside that of its connections, in KiB. A connection of a full
/// lane has 31.76 KiB of it: with its own, 71.76 KiB.
///
/// - 1,024 receive slots of 4,352 bytes: 4,352 KiB, three slots or more for a connection.
/// - 256 send slots of as many bytes: 1,088 KiB.
/// - 32 control slots of 64 bytes for each of 256 connections, and for one more: 514 KiB, 516 in
///   whole pages.
/// - The completion queue: 1,024 + 256 x (97 + 2 x 9) = 30,464 entries of 64 bytes, and with one
///   more the next power of two, 2,048 KiB. A connection's share is 8 KiB.
/// - The shared receive queue: 2 x 1,024 + 1 receives of 32 bytes, the next power of two, 128 KiB.
const LANE_KIB: f64 = 4352.0 + 1088.0 + 516.0 + 2048.0 + 128.0;

/// Connections of a lane. The next one gets another lane.
const LANE_CONNECTIONS: u64 = 256;

/// Returns the memory that so many connections and their lanes lock on mlx5, in KiB.
fn locked_kib(connections: u64) -> f64 {
    let lanes = connections.div_ceil(LANE_CONNECTIONS);
    lanes as f64 * LANE_KIB + connections as f64 * CONNECTION_KIB
}

pub(super) fn connections(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let counts: &[u64] = if pair.is_short { &[1, 8] } else { &[1, 100, 1000] };
    let is_mlx5 = pair.devices()?.iter().all(|device| device.starts_with("mlx5"));
    for &count in counts {
        let served = Served::start(pair, "--state")?;
        let (before, commands) = (pair.b.pinned_kib()?, commands(&pair.b)?);
        let arguments =
            format!("--connections {count} --in-flight {count} --warm-up 0 --millis {LOAD_MILLIS}");
        let began = Instant::now();
        let (called, most) = served.call_during(&arguments, |has_ended| {
            let mut most = before;
            while !has_ended() {
                most = most.max(pair.b.pinned_kib()?);
                thread::sleep(Duration::from_millis(100));
            }
            Ok(most)
        })?;
        let took = called.at - began;
        read(&mut outcome, &called.line?, "p50 ")?;
        outcome.print(pair.b.state()?);
        let connecting = took.saturating_sub(Duration::from_millis(LOAD_MILLIS));
        outcome.measure(
            format!("{count}: to connect, at most"),
            connecting.as_secs_f64(),
            "s",
            None,
        );
        let locked = most - before;
        outcome.measure(format!("{count}: pinned on B"), locked, "KiB", None);
        if is_mlx5 {
            let bound = Some(Bound::Between(0.9, 1.1));
            let ratio = locked / locked_kib(count);
            outcome.measure(format!("{count}: pinned / formulas"), ratio, "", bound);
        }
        if let (Some(before), Some(after)) = (commands, self::commands(&pair.b)?) {
            let each = (after - before) / count as f64;
            outcome.measure(format!("{count}: commands of B's firmware, each"), each, "", None);
        }
    }
    Ok(outcome)
}

/// Returns the commands that the firmware of a host's device has carried out, of all processes.
/// `None` where the driver does not count them, or not for this user.
fn commands(host: &Host) -> Result<Option<f64>> {
    let script = format!(
        "device=$(device_on $(netdev_of {}))
        pci=$(basename \"$(readlink -f /sys/class/infiniband/${{device:-none}}/device)\")
        cat /sys/kernel/debug/mlx5/$pci/commands/*/n 2>/dev/null |
            awk '{{ sum += $1 }} END {{ if (NR) print sum }}'",
        host.address
    );
    Ok(host.run(&script, SHORT)?.trim().parse().ok())
}

pub(super) fn latency(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let count = pair.pick(100_000, 300);
    let ours = |outcome: &mut Outcome| {
        let line = served.call(&format!("--size 64 --calls {count}"))?;
        read(outcome, &line, "p50 ")
    };
    // Half a round trip, as the fifth column.
    let theirs = || {
        let result = pair.perftest("ib_send_lat", &format!("-s 64 -n {count}"))?;
        let typical = result.map(|it| it.get(4).copied().context("ib_send_lat has no t_typical"));
        typical.transpose().map(|half| half.map(|half| 2.0 * half))
    };
    let first = ours(&mut outcome)?;
    let raw = [theirs()?, theirs()?];
    let p50 = first.min(ours(&mut outcome)?);
    outcome.measure("p50 of a call", p50, "us", None);
    match raw {
        [Some(one), Some(two)] => {
            let raw = one.min(two);
            outcome.measure("round trip of ib_send_lat", raw, "us", None);
            outcome.measure("ratio", p50 / raw, "", Some(Bound::AtMost(1.25)));
        }
        _ => outcome.print("ib_send_lat is not installed on both hosts: no ratio"),
    }
    Ok(outcome)
}

/// Returns the MB/s of downloads from a server with these options.
pub(super) fn download(
    pair: &Pair,
    outcome: &mut Outcome,
    options: &str,
    size: u64,
    calls: u64,
) -> Result<f64> {
    let served = Served::start(pair, options)?;
    let arguments = format!(
        "--operation download --size {size} --in-flight 4 --warm-up 4 --calls {calls} {options}"
    );
    read(outcome, &served.call(&arguments)?, "calls/s, ")
}

pub(super) fn bandwidth(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let calls = pair.pick(20_000, 12);
    let size = 1 << 20;
    let window = download(pair, &mut outcome, "--rkey-scope window", size, calls);
    let region = download(pair, &mut outcome, "--rkey-scope region", size, calls)?;
    let raw = pair.perftest("ib_read_bw", &format!("-s {size} -n {calls} -o 4"))?;
    let best = download(pair, &mut outcome, "--rkey-scope region", size, calls)?.max(region);
    outcome.measure("regions", best, "MB/s", None);
    match window {
        Ok(window) => {
            outcome.measure("windows", window, "MB/s", None);
            let bound = Some(Bound::AtLeast(0.95));
            outcome.measure("windows / regions", window / best, "", bound);
        }
        Err(error) => outcome.print(format!("no memory windows: {error:#}")),
    }
    match raw {
        // The fourth column is the average, in MiB/s.
        Some(numbers) => {
            let raw = numbers.get(3).context("ib_read_bw has no average")? * 1.048_576;
            outcome.measure("ib_read_bw", raw, "MB/s", None);
            outcome.measure("ratio", best / raw, "", Some(Bound::AtLeast(0.95)));
        }
        None => outcome.print("ib_read_bw is not installed on both hosts: no ratio"),
    }
    Ok(outcome)
}

pub(super) fn queues(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    for count in [1, 2, 4] {
        let options = format!("--read-queue-pairs {count}");
        let size = pair.pick(8 << 20, 1 << 20);
        let rate = download(pair, &mut outcome, &options, size, pair.pick(2_000, 8))?;
        outcome.measure(format!("{count} for READs"), rate, "MB/s", None);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_locks_18_mib_on_mlx5() {
        assert_eq!(locked_kib(256), 18_372.0);
        assert_eq!((locked_kib(256) / 256.0).floor(), 71.0);
        assert_eq!(locked_kib(257) - locked_kib(256), LANE_KIB + CONNECTION_KIB);
    }
}
