//! The two hosts, and a server on the one with its clients on the other.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::hardware::counters::Counters;
use crate::hardware::host::{Host, SHORT};
use crate::hardware::outcome::{Outcome, last_numbers, number_after, sum_after};
use crate::hardware::programs::TestPrograms;

/// A load of one client. In emulation it takes minutes.
pub(super) const LOAD: Duration = Duration::from_secs(300);

/// Time of a load, whatever the devices do in it.
pub(super) const LOAD_MILLIS: u64 = 4_000;

/// The two hosts, and how much the rows do.
#[derive(Debug)]
pub(in crate::hardware) struct Pair {
    /// This host, with the clients.
    pub(in crate::hardware) a: Host,
    /// The other one, with the servers.
    pub(in crate::hardware) b: Host,
    /// Tests for their devices, if a row needs them.
    pub(in crate::hardware) tests: Option<TestPrograms>,
    /// The counters of both devices before the first row.
    pub(in crate::hardware) at_start: [Counters; 2],
    /// Set where devices are emulated: fewer and smaller loads.
    pub(in crate::hardware) is_short: bool,
}

/// A server on B, stopped when dropped.
pub(super) struct Served<'a> {
    pub(super) pair: &'a Pair,
    pub(super) address: String,
}

/// The end of a client.
pub(super) struct Called {
    /// The line that it printed, if no call failed.
    pub(super) line: Result<String>,
    pub(super) at: Instant,
}

impl<'a> Served<'a> {
    pub(super) fn start(pair: &'a Pair, options: &str) -> Result<Self> {
        Self::start_at(pair, &pair.b.address, options)
    }

    pub(super) fn start_at(pair: &'a Pair, address: &str, options: &str) -> Result<Self> {
        let options = format!("{options} {}", pair.patience());
        Ok(Self { pair, address: pair.b.serve(address, &options)? })
    }

    /// Runs a client on A and returns what it prints. The error of one that fails has its message.
    pub(super) fn call(&self, arguments: &str) -> Result<String> {
        let patience = self.pair.patience();
        let script =
            format!(r#""$bin/farcall-bench" client {} {arguments} {patience}"#, self.address);
        self.pair.a.run(&script, LOAD)
    }

    /// Runs a client on A while `meanwhile` runs here, which can ask if the client has ended.
    pub(super) fn call_during<T>(
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

    /// Waits until the server, which prints its state, has a connection over RDMA, or its client
    /// has ended.
    pub(super) fn until_connected(&self, has_ended: &dyn Fn() -> bool) -> Result<()> {
        while !has_ended() && sum_after(&self.pair.b.state()?, "connections ") == 0.0 {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // A server that is gone was to be stopped.
        drop(self.pair.b.stop());
    }
}

impl Pair {
    pub(super) fn pick(&self, full: u64, short: u64) -> u64 {
        if self.is_short { short } else { full }
    }

    /// The option of farcall-bench with which emulated devices, on a busy host, fail no call.
    fn patience(&self) -> &'static str {
        if self.is_short { "--patient" } else { "" }
    }

    /// Returns the tests that run on the devices.
    pub(super) fn tests(&self) -> Result<&TestPrograms> {
        self.tests.as_ref().context("the tests were not built")
    }

    /// Returns the counters of both devices at this moment.
    pub(in crate::hardware) fn counters(&self) -> Result<[Counters; 2]> {
        Ok([Counters::read(&self.a)?, Counters::read(&self.b)?])
    }

    /// Returns the network device of B's address.
    pub(super) fn netdev(&self) -> Result<String> {
        let script = format!("netdev_of {}", self.b.address);
        let printed = self.b.run(&script, SHORT)?;
        ensure!(!printed.trim().is_empty(), "B has no network device with {}", self.b.address);
        Ok(printed.trim().to_owned())
    }

    /// Returns the names of both RDMA devices.
    pub(super) fn devices(&self) -> Result<[String; 2]> {
        let here = self.a.run(&format!("device_on $(netdev_to {})", self.b.address), SHORT)?;
        let there = self.b.run(&format!("device_on {}", self.netdev()?), SHORT)?;
        ensure!(!here.trim().is_empty(), "A has no RDMA device on the way to {}", self.b.address);
        ensure!(!there.trim().is_empty(), "B has no RDMA device with {}", self.b.address);
        Ok([here.trim().to_owned(), there.trim().to_owned()])
    }

    /// Runs a tool of perftest on both hosts and returns the numbers of its result. `None` where it
    /// is not installed.
    pub(super) fn perftest(&self, tool: &str, arguments: &str) -> Result<Option<Vec<f64>>> {
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
pub(super) fn read(outcome: &mut Outcome, line: &str, label: &str) -> Result<f64> {
    outcome.print(line);
    if !line.starts_with("rdma ") {
        outcome.fail(format!("not on RDMA: {}", line.trim()));
    }
    number_after(line, label).with_context(|| format!("no `{label}` in `{}`", line.trim()))
}
