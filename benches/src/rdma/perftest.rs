//! The tools of perftest: what the device does when nothing stands between.

use std::process::Command;

use anyhow::Result;

use super::contestant::{Contestant, Values};
use super::{perftest_table as table, tool};
use crate::driver::{Bench, Place};

/// Bytes that Soft-RoCE reads in a millisecond. It determines the length of a run; on a faster
/// device the run is shorter.
const READ_PER_MILLI: u64 = 200_000;

/// The fewest iterations that the tools accept.
const COUNT_MIN: u64 = 8;

/// One of the tools with its arguments.
#[derive(Debug)]
pub(super) struct Perftest {
    name: String,
    program: &'static str,
    arguments: Vec<String>,
    count: u64,
    place: Place,
    read: fn(&str) -> Result<Values>,
}

impl Perftest {
    /// `ib_send_lat`: messages there and back. As `p50_us` it has twice what the tool prints, which
    /// is half a round trip.
    pub(super) fn latency(bench: &Bench, size: usize) -> Self {
        let count = 3 * bench.effort.millis + 100;
        Self::new(bench, "ib_send_lat", size, count, |text| {
            let half = table::half_round_trip_us(text)?;
            let p50 = ("p50_us".to_owned(), 2.0 * half);
            Ok(Values::from([("half_round_trip_us".to_owned(), half), p50]))
        })
    }

    /// `ib_read_bw` with so many READs outstanding.
    pub(super) fn read_bandwidth(bench: &Bench, size: usize, outstanding: u32) -> Self {
        let count = bench.effort.millis * READ_PER_MILLI / size as u64;
        let mut tool = Self::new(bench, "ib_read_bw", size, count, |text| {
            Ok(Values::from([("mb_per_s".to_owned(), table::megabytes_per_second(text)?)]))
        });
        tool.arguments.extend(["--outs".to_owned(), outstanding.to_string()]);
        tool
    }

    /// `ib_send_bw`: as many small messages as go. As `calls_per_s` it has half their number, since
    /// a call is two.
    pub(super) fn send_rate(bench: &Bench, size: usize) -> Self {
        Self::new(bench, "ib_send_bw", size, 30 * bench.effort.millis, |text| {
            let rate = table::messages_per_second(text)?;
            let calls = ("calls_per_s".to_owned(), rate / 2.0);
            Ok(Values::from([("messages_per_s".to_owned(), rate), calls]))
        })
    }

    fn new(
        bench: &Bench,
        program: &'static str,
        size: usize,
        count: u64,
        read: fn(&str) -> Result<Values>,
    ) -> Self {
        Self {
            name: program.to_owned(),
            program,
            arguments: vec!["--size".to_owned(), size.to_string()],
            count: count.max(COUNT_MIN),
            place: bench.place.clone(),
            read,
        }
    }

    /// Waiting for events instead of polling.
    pub(super) fn with_events(mut self) -> Self {
        self.name.push_str(" -e");
        self.arguments.push("--events".to_owned());
        self
    }

    /// With so many iterations.
    pub(super) fn with_count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    fn end(&self, device: &str, port: u16) -> Command {
        let mut command = Command::new(self.program);
        // The processor's clock rate, which it asks about otherwise, is of no use to anybody.
        command.args(["--CPU-freq", "--ib-dev", device]);
        command.args(["--port", &port.to_string(), "--iters", &self.count.to_string()]);
        command.args(&self.arguments);
        command
    }
}

impl Contestant for Perftest {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&mut self) -> Result<Values> {
        let text = tool::run(
            |port| self.end(&self.place.server_device, port),
            |port| {
                let mut client = self.end(&self.place.client_device, port);
                client.arg(&self.place.server_address);
                client
            },
        )?;
        (self.read)(&text)
    }
}
