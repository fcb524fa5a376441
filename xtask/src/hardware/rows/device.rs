//! Rows about the devices and the path between them.

use anyhow::{Context as _, Result};

use super::pair::{LOAD, Pair, Served, read};
use crate::batch::end_of;
use crate::hardware::host::SHORT;
use crate::hardware::outcome::{Outcome, word_after};
use crate::hardware::programs::Tested;

const INVENTORY: &str = r#"
uname -r
echo "ulimit -l $(ulimit -l)"
ip -o link
grep -H . /proc/net/bonding/* 2>/dev/null
cd /sys/class/infiniband || exit 1
grep -H . */fw_ver */board_id */hca_type */ports/*/{state,rate,link_layer} 2>/dev/null
grep -H . */tc/*/traffic_class */ports/*/hw_counters/* 2>/dev/null
grep -H . */ports/*/gid_attrs/ndevs/* */ports/*/gid_attrs/types/* 2>/dev/null
ibv_devinfo -v 2>/dev/null
true"#;

pub(super) fn inventory(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    for (name, host) in [("A", &pair.a), ("B", &pair.b)] {
        outcome.print(format!("{name}: {}", host.run(INVENTORY, SHORT)?));
        let doctor =
            format!(r#""$bin/farcall" doctor --address {} 2>&1; echo "exit $?""#, host.address);
        let printed = host.run(&doctor, LOAD)?;
        if !printed.trim_end().ends_with("exit 0") {
            outcome.fail(format!("`farcall doctor` on {name} says that RDMA cannot work"));
        }
        outcome.print(printed);
    }
    Ok(outcome)
}

pub(super) fn path(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let printed = pair.a.run(&format!(r#""$bin/farcall" ping {} 2>&1"#, served.address), LOAD)?;
    if !printed.contains("over rdma") {
        outcome.fail("the connection is not on RDMA");
    }
    outcome.print(printed);
    Ok(outcome)
}

/// The test that takes a window through three lives.
const THREE_LIVES: &str = "--exact windows::the_devices_pass_the_check_of_their_windows";

pub(super) fn windows(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let (tests, [device_a, device_b]) = (pair.tests()?, pair.devices()?);
    let [scope_a, scope_b] = rkey_scopes(pair, &mut outcome)?;
    let on_a = |arguments: &str| tests.verbs(&pair.a, arguments);
    let on_b = |arguments: &str| tests.verbs_there(&pair.b, arguments);
    windows_on("A", &device_a, &scope_a, on_a, &mut outcome)?;
    windows_on("B", &device_b, &scope_b, on_b, &mut outcome)?;
    Ok(outcome)
}

/// Tests the windows of a host's device, and the scope of keys that it was given.
fn windows_on(
    host: &str,
    device: &str,
    scope: &str,
    run: impl Fn(&str) -> Result<Tested>,
    outcome: &mut Outcome,
) -> Result<()> {
    let lives = run(THREE_LIVES)?;
    let is_emulated = device.starts_with("rxe");
    // Windows work on Soft-RoCE, and a peer could make the kernel panic by them.
    let expected = if lives.has_passed && !is_emulated { "window" } else { "region" };
    outcome.print(format!("{device} on {host} gives keys of scope {scope}"));
    if scope != expected {
        outcome.fail(format!("keys of {device} on {host} have scope {scope}, not {expected}"));
    }
    // Other devices may have none, or none that work.
    if lives.has_passed || is_emulated {
        judge(outcome, &format!("windows on {host}"), &run("windows::")?);
    } else {
        outcome.print(format!("no windows on {host}: {}", end_of(&lives.printed)));
    }
    Ok(())
}

/// Returns the scope of keys that is chosen on A and on B.
fn rkey_scopes(pair: &Pair, outcome: &mut Outcome) -> Result<[String; 2]> {
    let served = Served::start(pair, "--state --rkey-scope auto")?;
    let printed = served.call("--state --rkey-scope auto --size 64 --warm-up 0 --calls 20")?;
    read(outcome, &printed, "p50 ")?;
    let there = pair.b.state()?;
    outcome.print(&there);
    let scope = |text: &str| {
        let scope = word_after(text, "keys ").map(str::to_owned);
        scope.with_context(|| format!("no scope of keys in `{text}`"))
    };
    Ok([scope(&printed)?, scope(&there)?])
}

pub(super) fn verbs(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    // Emulated devices have a step of their own for the whole.
    let filter = if pair.is_short { "reads::" } else { "" };
    judge(&mut outcome, "tests of the verbs", &pair.tests()?.verbs(&pair.a, filter)?);
    Ok(outcome)
}

pub(super) fn suite(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let filter = if pair.is_short { "a_payload_of_any_size" } else { "" };
    judge(&mut outcome, "behaviours", &pair.tests()?.suite(&pair.a, filter)?);
    Ok(outcome)
}

/// Adds the end of a test program.
fn judge(outcome: &mut Outcome, name: &str, tested: &Tested) {
    outcome.measure(format!("{name}, passed"), tested.count, "", None);
    if !tested.has_passed {
        outcome.print(end_of(&tested.printed));
        outcome.fail(format!("{name}: a test failed, or none was run"));
    }
}

pub(super) fn counters(pair: &Pair) -> Result<Outcome> {
    let now = pair.counters()?;
    let mut outcome = Outcome::new();
    outcome.print_counters("counted since the start", &pair.at_start, &now);
    let mut are_counted = true;
    for (name, before, now) in
        [("A", 0), ("B", 1)].map(|(name, side)| (name, &pair.at_start[side], &now[side]))
    {
        let since = now.since(before);
        are_counted &= since.watched().next().is_some();
        for (counter, difference) in since.watched() {
            outcome.measure(format!("{name}: {counter}"), difference as f64, "", None);
        }
    }
    match are_counted {
        true => Ok(outcome),
        false => Ok(Outcome::skipped("a device counts none of the faults")),
    }
}
