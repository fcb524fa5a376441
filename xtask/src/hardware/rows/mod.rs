//! The rows, in the order in which they run.

mod device;
mod ends;
mod load;
mod network;
mod pair;

use anyhow::Result;

use self::device::{counters, inventory, path, suite, verbs, windows};
use self::ends::{closes, firmware, killed};
use self::load::{bandwidth, connections, latency, queues};
use self::network::{bond, class, flap_long, flap_short, loss, mtu, retries};
pub(super) use self::pair::Pair;
use super::outcome::Outcome;

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Set if it takes a link down, drops packets or resets a device.
    pub(super) is_disruptive: bool,
    /// Set if it runs test programs.
    pub(super) needs_tests: bool,
    pub(super) run: fn(&Pair) -> Result<Outcome>,
}

/// All rows.
pub(super) const ROWS: &[Row] = &[
    row("inventory", "kernel, firmware, ports, MTUs, limits; `farcall doctor` on both", inventory),
    tests("windows", "memory windows on both: three lives, other pairs, the key scope", windows),
    tests("verbs", "the tests of the verbs, on A's device", verbs),
    tests("suite", "the behaviours of every transport, over A's device", suite),
    row("path", "`farcall ping` is on RDMA", path),
    row("connections", "time and pinned memory of 1, 100 and 1,000 connections", connections),
    row("latency", "64-byte calls beside ib_send_lat, A B B A", latency),
    row("bandwidth", "1 MiB downloads beside ib_read_bw; windows beside regions", bandwidth),
    row("queues", "8 MiB downloads over 1, 2 and 4 queue pairs for READs", queues),
    row("bond", "the lesser port of a bond carries 40 % of 8 MiB downloads", bond),
    row("class", "traffic class 106 on one side, on the other, and on both", class),
    row("closes", "200 clients killed in mid-message leave nothing pinned or missing", closes),
    row("killed", "a killed server: its client ends within a second", killed),
    disruptive("mtu", "a VLAN of 1,500 bytes on a wider port stays on RDMA", mtu),
    disruptive("flap-100ms", "a link that is down for 100 ms fails no call", flap_short),
    disruptive("flap-3s", "after 3 s without a link, calls are on RDMA again", flap_long),
    disruptive("retries", "time to give up at a dead link, by the time for an ACK", retries),
    disruptive("loss", "0.1 % of lost packets: no call fails", loss),
    disruptive("firmware", "mlxfwreset under load: TCP, then RDMA again", firmware),
    row("counters", "lost packets, retries and refusals of the whole run", counters),
];

const fn row(name: &'static str, what: &'static str, run: fn(&Pair) -> Result<Outcome>) -> Row {
    Row { name, what, is_disruptive: false, needs_tests: false, run }
}

const fn disruptive(
    name: &'static str,
    what: &'static str,
    run: fn(&Pair) -> Result<Outcome>,
) -> Row {
    Row { is_disruptive: true, ..row(name, what, run) }
}

const fn tests(name: &'static str, what: &'static str, run: fn(&Pair) -> Result<Outcome>) -> Row {
    Row { needs_tests: true, ..row(name, what, run) }
}
