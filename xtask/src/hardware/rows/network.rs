//! Rows about links, and what they do to packets.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::load::download;
use super::pair::{Pair, Served, read};
use crate::hardware::host::{Host, SHORT};
use crate::hardware::outcome::{Bound, Outcome, number_after};

pub(super) fn bond(pair: &Pair) -> Result<Outcome> {
    let script = "cat /proc/net/bonding/* 2>/dev/null | grep -c '^Slave Interface'; true";
    if number_after(&format!("={}", pair.b.run(script, SHORT)?), "=").unwrap_or(0.0) < 2.0 {
        return Ok(Outcome::skipped("B has no bond of two ports"));
    }
    let script = r"for slave in $(sed -n 's/^Slave Interface: //p' /proc/net/bonding/*); do
        ethtool -S $slave | sed -n 's/^ *tx_vport_rdma_unicast_bytes: //p'
    done";
    let counters = || -> Result<Vec<f64>> {
        let printed = pair.b.run(script, SHORT)?;
        printed.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    };
    let mut outcome = Outcome::new();
    let before = counters()?;
    download(pair, &mut outcome, "", 8 << 20, pair.pick(2_000, 4))?;
    let sent: Vec<f64> = counters()?.iter().zip(&before).map(|(now, then)| now - then).collect();
    let (least, sum) = (sent.iter().copied().fold(f64::MAX, f64::min), sent.iter().sum::<f64>());
    ensure!(sum > 0.0, "the ports of the bond count no RDMA bytes");
    outcome.measure("share of the lesser port", least / sum, "", Some(Bound::AtLeast(0.4)));
    Ok(outcome)
}

pub(super) fn mtu(pair: &Pair) -> Result<Outcome> {
    if pair.devices()?.iter().any(|device| device.starts_with("rxe")) {
        return Ok(Outcome::skipped("a Soft-RoCE device has one network device"));
    }
    let change = |host: &Host, address: &str, netdev: &str| {
        let up = format!(
            "ip link add link {netdev} name farcall-vlan type vlan id 99
            ip link set farcall-vlan mtu 1500 up
            ip address add {address}/30 dev farcall-vlan"
        );
        host.change(&up, "ip link del farcall-vlan")
    };
    let here = pair.a.run(&format!("netdev_to {}", pair.b.address), SHORT)?;
    let mut outcome = Outcome::new();
    let called = (|| {
        change(&pair.a, "198.18.99.1", here.trim())?;
        change(&pair.b, "198.18.99.2", &pair.netdev()?)?;
        let served = Served::start_at(pair, "198.18.99.2", "")?;
        served.call("--size 65536 --calls 2000")
    })();
    let undone = [pair.a.undo(), pair.b.undo()];
    read(&mut outcome, &called?, "p50 ")?;
    undone.into_iter().collect::<Result<()>>()?;
    Ok(outcome)
}

/// A load of small calls.
const SMALL: &str = "--size 64";

/// Takes B's link down for so many seconds under a load, once the client is connected, and returns
/// the end of the client. The load goes on for three seconds. `notice` are the seconds from the
/// connection to the look at the server's state that shows it.
fn flap(
    pair: &Pair,
    served: &Served<'_>,
    seconds: f64,
    load: &str,
    notice: u64,
) -> Result<Result<String>> {
    let netdev = pair.netdev()?;
    // In the background: B is perhaps reached over this very link.
    let script = format!(
        "nohup bash -c 'ip link set {netdev} down; sleep {seconds}; ip link set {netdev} up' \
         >/dev/null 2>&1 </dev/null &"
    );
    let millis = (notice as f64 + seconds + 3.0) * 1e3;
    let arguments = format!("--warm-up 0 --millis {millis:.0} {load}");
    let (called, ()) = served.call_during(&arguments, |has_ended| {
        served.until_connected(has_ended)?;
        pair.b.run(&script, SHORT).map(drop)
    })?;
    Ok(called.line)
}

pub(super) fn flap_short(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "--state")?;
    match flap(pair, &served, 0.1, SMALL, pair.pick(4, 8))? {
        Ok(line) => drop(read(&mut outcome, &line, "p50 ")?),
        // An emulated host that gets no processor stretches the 100 ms.
        Err(error) if pair.is_short => {
            outcome.print(format!("a call failed: {error:#}"));
            return_to_rdma(&served, &mut outcome)?;
        }
        Err(error) => outcome.fail(format!("a call failed: {error:#}")),
    }
    Ok(outcome)
}

/// Calls again, when a port that was down has had time to come back.
fn return_to_rdma(served: &Served<'_>, outcome: &mut Outcome) -> Result<()> {
    thread::sleep(Duration::from_secs(4));
    read(outcome, &served.call("--size 64 --warm-up 0 --calls 200")?, "p50 ").map(drop)
}

pub(super) fn flap_long(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "--state")?;
    let called = flap(pair, &served, 3.0, SMALL, pair.pick(4, 8))?;
    outcome.print(called.unwrap_or_else(|error| format!("calls in flight failed: {error:#}")));
    return_to_rdma(&served, &mut outcome)?;
    Ok(outcome)
}

/// Tries of a packet: the first one and six more.
const TRIES: f64 = 7.0;

/// Devices may stretch the time for an acknowledgement so much.
const STRETCH: f64 = 4.0;

/// The message of a queue pair whose tries are over.
const GIVEN_UP: &str = "retries exceeded";

pub(super) fn retries(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    for timeout in [14, 16] {
        let nominal = TRIES * 4.096e-6 * f64::from(1_u32 << timeout);
        let down = nominal * STRETCH + 2.0;
        let options = format!("--ack-timeout {timeout}");
        let served = Served::start(pair, &format!("--state {options}"))?;
        // A has READs outstanding at any moment. A call would be acknowledged soon, and its answer
        // is B's to send again.
        let size = pair.pick(1 << 20, 65_536);
        let load = format!("--operation download --size {size} --in-flight 8 {options}");
        // The load ends with the first call that fails.
        let called = flap(pair, &served, down, &load, 60)?;
        // The link may stay down for so long still, and the next server needs it.
        thread::sleep(Duration::from_secs_f64(down));
        let message = match called {
            Ok(line) => {
                outcome.fail(format!("all calls were answered: {line}"));
                continue;
            }
            Err(error) => format!("{error:#}"),
        };
        outcome.print(format!("timeout {timeout}: {message}"));
        if !message.contains(GIVEN_UP) {
            outcome.fail(format!("timeout {timeout}: not `{GIVEN_UP}`: {message}"));
        }
        let failed_after = "a call failed after ";
        let millis = number_after(&message, failed_after)
            .with_context(|| format!("no `{failed_after}` in `{message}`"))?;
        let bound = (!pair.is_short).then_some(Bound::AtMost(nominal * STRETCH + 0.5));
        outcome.measure(format!("timeout {timeout}: nominal"), nominal, "s", None);
        outcome.measure(format!("timeout {timeout}: measured"), millis / 1e3, "s", bound);
    }
    Ok(outcome)
}

/// The class of data centers: DSCP 26, with ECN.
const CLASS: f64 = 106.0;

pub(super) fn class(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let option = format!("--traffic-class {CLASS}");
    let calls = pair.pick(2_000, 20);
    for (name, client, server, has_class) in [
        // A server without a class of its own uses its client's.
        ("A alone", option.as_str(), "", [true, true]),
        ("B alone", "", option.as_str(), [false, true]),
        ("both", option.as_str(), option.as_str(), [true, true]),
    ] {
        let before = pair.counters()?;
        let served = Served::start(pair, server)?;
        // Large enough to travel by READ, both ways.
        let load = format!("--state --size 65536 --warm-up 0 --calls {calls} {client}");
        let printed = served.call(&load)?;
        read(&mut outcome, &printed, "p50 ")?;
        outcome.print_counters(name, &before, &pair.counters()?);
        let ends = [("A", "own class "), ("B", "class of the peer ")];
        for ((end, label), has_class) in ends.into_iter().zip(has_class) {
            let class = number_after(&printed, label)
                .with_context(|| format!("no `{label}` in `{}`", printed.trim()))?;
            outcome.measure(format!("{name}: class of {end}"), class, "", None);
            if has_class && class != CLASS {
                outcome.fail(format!("{name}: the class of {end} is {class}"));
            }
        }
    }
    Ok(outcome)
}

pub(super) fn loss(pair: &Pair) -> Result<Outcome> {
    if pair.devices()?.iter().any(|device| !device.starts_with("rxe")) {
        let reason = "packets of a NIC's queue pairs do not pass netem: lose them at the switch";
        return Ok(Outcome::skipped(reason));
    }
    let mut outcome = Outcome::new();
    let netdev = pair.netdev()?;
    let served = Served::start(pair, "")?;
    let add = format!("tc qdisc add dev {netdev} root netem loss 0.1%");
    if let Err(error) = pair.b.change(&add, &format!("tc qdisc del dev {netdev} root")) {
        return Ok(Outcome::skipped(format!("B cannot lose packets: {error:#}")));
    }
    let called = served.call(&format!("--size 64 --calls {}", pair.pick(200_000, 1_000)));
    pair.b.undo()?;
    read(&mut outcome, &called?, "p99 ")?;
    Ok(outcome)
}
