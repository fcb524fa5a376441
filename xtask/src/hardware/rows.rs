//! The rows, in the order in which they run.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::host::{Host, SHORT};
use super::outcome::{Bound, Outcome, last_numbers, number_after};

/// A load of one client. In emulation it takes minutes.
const LOAD: Duration = Duration::from_secs(300);

/// Time of a load, whatever the devices do in it.
const LOAD_MILLIS: u64 = 4_000;

/// The memory that a connection pins on mlx5: send queues, its share of the completion queue, and
/// three slots, by the formulas of libmlx5 with 124 bytes inline.
const PINNED_KIB: f64 = 72.0;

/// The two hosts, and how much the rows do.
#[derive(Debug)]
pub(super) struct Pair {
    /// This host, with the clients.
    pub(super) a: Host,
    /// The other one, with the servers.
    pub(super) b: Host,
    /// Set where devices are emulated: fewer and smaller loads.
    pub(super) is_short: bool,
}

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Set if it takes a link down, drops packets or resets a device.
    pub(super) is_disruptive: bool,
    pub(super) run: fn(&Pair) -> Result<Outcome>,
}

/// All rows.
pub(super) const ROWS: &[Row] = &[
    row("inventory", "kernel, firmware, ports, MTUs, limits; `farcall doctor` on both", inventory),
    row("path", "`farcall ping` is on RDMA", path),
    row("connections", "time and pinned memory of 1, 100 and 1,000 connections", connections),
    row("latency", "64-byte calls beside ib_send_lat, A B B A", latency),
    row("bandwidth", "1 MiB downloads beside ib_read_bw; windows beside regions", bandwidth),
    row("queues", "8 MiB downloads over 1, 2 and 4 queue pairs for READs", queues),
    row("bond", "the lesser port of a bond carries 40 % of 8 MiB downloads", bond),
    row("closes", "200 clients killed in mid-message leave nothing pinned", closes),
    row("killed", "a killed server: its client ends within a second", killed),
    disruptive("mtu", "a VLAN of 1,500 bytes on a wider port stays on RDMA", mtu),
    disruptive("flap-100ms", "a link that is down for 100 ms fails no call", flap_short),
    disruptive("flap-3s", "after 3 s without a link, calls are on RDMA again", flap_long),
    disruptive("loss", "0.1 % of lost packets: no call fails", loss),
    disruptive("firmware", "mlxfwreset under load: TCP, then RDMA again", firmware),
];

const fn row(name: &'static str, what: &'static str, run: fn(&Pair) -> Result<Outcome>) -> Row {
    Row { name, what, is_disruptive: false, run }
}

const fn disruptive(
    name: &'static str,
    what: &'static str,
    run: fn(&Pair) -> Result<Outcome>,
) -> Row {
    Row { is_disruptive: true, ..row(name, what, run) }
}

/// A server on B, stopped when dropped.
struct Served<'a> {
    pair: &'a Pair,
    address: String,
}

/// The end of a client.
struct Called {
    /// The line that it printed, if no call failed.
    line: Result<String>,
    at: Instant,
}

impl<'a> Served<'a> {
    fn start(pair: &'a Pair, options: &str) -> Result<Self> {
        Self::start_at(pair, &pair.b.address, options)
    }

    fn start_at(pair: &'a Pair, address: &str, options: &str) -> Result<Self> {
        Ok(Self { pair, address: pair.b.serve(address, options)? })
    }

    /// Runs a client on A and returns the line that it prints.
    fn call(&self, arguments: &str) -> Result<String> {
        let script = format!(r#""$bin/farcall-bench" client {} {arguments} 2>&1"#, self.address);
        self.pair.a.run(&script, LOAD)
    }

    /// Runs a client on A while `meanwhile` runs here, which can ask if the client has ended.
    fn call_during<T>(
        &self,
        arguments: &str,
        meanwhile: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
    ) -> Result<(Called, T)> {
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let line = self.call(arguments);
                Called { line, at: Instant::now() }
            });
            let done = meanwhile(&|| client.is_finished());
            let called = client.join().ok().context("the client's thread panicked")?;
            Ok((called, done?))
        })
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // A server that is gone was to be stopped.
        drop(self.pair.b.stop());
    }
}

impl Pair {
    fn pick(&self, full: u64, short: u64) -> u64 {
        if self.is_short { short } else { full }
    }

    /// Returns the network device of B's address.
    fn netdev(&self) -> Result<String> {
        let script = format!("netdev_of {}", self.b.address);
        let printed = self.b.run(&script, SHORT)?;
        ensure!(!printed.trim().is_empty(), "B has no network device with {}", self.b.address);
        Ok(printed.trim().to_owned())
    }

    /// Returns the names of both RDMA devices.
    fn devices(&self) -> Result<[String; 2]> {
        let here = self.a.run(&format!("device_on $(netdev_to {})", self.b.address), SHORT)?;
        let there = self.b.run(&format!("device_on {}", self.netdev()?), SHORT)?;
        ensure!(!here.trim().is_empty(), "A has no RDMA device on the way to {}", self.b.address);
        ensure!(!there.trim().is_empty(), "B has no RDMA device with {}", self.b.address);
        Ok([here.trim().to_owned(), there.trim().to_owned()])
    }

    /// Runs a tool of perftest on both hosts and returns the numbers of its result. `None` where it
    /// is not installed.
    fn perftest(&self, tool: &str, arguments: &str) -> Result<Option<Vec<f64>>> {
        for host in [&self.a, &self.b] {
            if host.run(&format!("command -v {tool}"), SHORT).is_err() {
                return Ok(None);
            }
        }
        let [here, there] = self.devices()?;
        let server = format!(
            r#"timeout 120 {tool} -d {there} -F {arguments} \
                >"$dir/perftest.log" 2>&1 </dev/null &
            for _ in {{1..100}}; do ss -ltn | grep -q ':18515 ' && exit; sleep 0.1; done
            cat "$dir/perftest.log" >&2
            exit 1"#
        );
        self.b.run(&server, SHORT)?;
        let client = format!("timeout 120 {tool} -d {here} -F {arguments} {} 2>&1", self.b.address);
        let printed = self.a.run(&client, LOAD)?;
        let numbers = last_numbers(&printed);
        numbers.map(Some).with_context(|| format!("{tool} printed no result: {printed}"))
    }
}

/// Returns the number after `label`, and keeps the line.
fn read(outcome: &mut Outcome, line: &str, label: &str) -> Result<f64> {
    outcome.print(line);
    if !line.starts_with("rdma ") {
        outcome.fail(format!("not on RDMA: {}", line.trim()));
    }
    number_after(line, label).with_context(|| format!("no `{label}` in `{}`", line.trim()))
}

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

fn inventory(pair: &Pair) -> Result<Outcome> {
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

fn path(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let printed = pair.a.run(&format!(r#""$bin/farcall" ping {} 2>&1"#, served.address), LOAD)?;
    if !printed.contains("over rdma") {
        outcome.fail("the connection is not on RDMA");
    }
    outcome.print(printed);
    Ok(outcome)
}

fn connections(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let counts: &[u64] = if pair.is_short { &[1, 8] } else { &[1, 100, 1000] };
    let is_mlx5 = pair.devices()?.iter().all(|device| device.starts_with("mlx5"));
    for &count in counts {
        let options = format!("--rdma-connections {}", count.max(256));
        let served = Served::start(pair, &options)?;
        let before = pair.b.pinned_kib()?;
        let arguments = format!(
            "{options} --connections {count} --in-flight {count} --warm-up 0 --millis {LOAD_MILLIS}"
        );
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
        let connecting = took.saturating_sub(Duration::from_millis(LOAD_MILLIS));
        outcome.measure(
            format!("{count}: to connect, at most"),
            connecting.as_secs_f64(),
            "s",
            None,
        );
        let each = (most - before) / count as f64;
        let bound = (is_mlx5 && count > 1).then_some(Bound::AtMost(PINNED_KIB * 1.1));
        outcome.measure(format!("{count}: pinned on B a connection"), each, "KiB", bound);
    }
    Ok(outcome)
}

fn latency(pair: &Pair) -> Result<Outcome> {
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
fn download(
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

fn bandwidth(pair: &Pair) -> Result<Outcome> {
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

fn queues(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    for count in [1, 2, 4] {
        let options = format!("--read-queue-pairs {count}");
        let rate = download(pair, &mut outcome, &options, 8 << 20, pair.pick(2_000, 4))?;
        outcome.measure(format!("{count} for READs"), rate, "MB/s", None);
    }
    Ok(outcome)
}

fn bond(pair: &Pair) -> Result<Outcome> {
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

fn closes(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
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
    let mut after = pair.b.pinned_kib()?;
    // The server notices the last of them by a timeout of its device.
    for _ in 0..60 {
        if after <= before * 1.1 {
            break;
        }
        thread::sleep(Duration::from_secs(1));
        after = pair.b.pinned_kib()?;
    }
    outcome.measure("pinned, after / before", after / before, "", Some(Bound::AtMost(1.1)));
    Ok(outcome)
}

fn killed(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let arguments = "--size 64 --warm-up 0 --millis 60000";
    let (called, (before, after)) = served.call_during(arguments, |_| {
        thread::sleep(Duration::from_secs(pair.pick(2, 8)));
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

fn mtu(pair: &Pair) -> Result<Outcome> {
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

/// Takes B's link down for so many seconds under load, and returns the end of the client.
fn flap(pair: &Pair, served: &Served<'_>, seconds: f64) -> Result<Result<String>> {
    let netdev = pair.netdev()?;
    // In the background: B is perhaps reached over this very link.
    let script = format!(
        "nohup bash -c 'sleep 1; ip link set {netdev} down; sleep {seconds}; ip link set {netdev} \
         up' >/dev/null 2>&1 </dev/null &"
    );
    let arguments = format!("--size 64 --warm-up 0 --millis {}", LOAD_MILLIS + 3_000);
    let (called, ()) = served.call_during(&arguments, |_| pair.b.run(&script, SHORT).map(drop))?;
    Ok(called.line)
}

fn flap_short(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    match flap(pair, &served, 0.1)? {
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

fn flap_long(pair: &Pair) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let served = Served::start(pair, "")?;
    let called = flap(pair, &served, 3.0)?;
    outcome.print(called.unwrap_or_else(|error| format!("calls in flight failed: {error:#}")));
    return_to_rdma(&served, &mut outcome)?;
    Ok(outcome)
}

fn loss(pair: &Pair) -> Result<Outcome> {
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

fn firmware(pair: &Pair) -> Result<Outcome> {
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
