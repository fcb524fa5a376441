//! R7: against UCX's active messages on the same devices.

use std::process::Command;

use anyhow::Result;

use super::caller::{Caller, Wait, over_rdma};
use super::contest::Contest;
use super::contestant::{Contestant, Values};
use super::{MIB, SMALL, tool, ucx_table as table};
use crate::driver::{Bench, Place};
use crate::figures::{Goal, Part};
use crate::worker::{Load, Operation};

/// Large messages in flight, on either side.
const IN_FLIGHT: usize = 4;

/// The length of a bandwidth test for each millisecond of a measurement, in bytes.
const BYTES_PER_MILLI: u64 = 200_000;

/// R7: the latency of small messages, and the rate of large ones. A call is an active message there
/// and one back. UCX polls, and for small messages so does farcall; for the rate each waits as it
/// does by itself, and farcall that polls stands beside.
pub(super) fn compare(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let polling = over_rdma(bench, Wait::Polling).named("farcall, polling");
    let small = Load::new(Operation::Echo, SMALL, bench.effort.span());
    let large = Load::new(Operation::Upload, MIB, bench.effort.span()).with_in_flight(IN_FLIGHT);
    let mut contestants: Vec<Box<dyn Contestant>> =
        vec![Caller::boxed(bench, &polling, small)?, Box::new(Ucx::latency(bench))];
    let latency = Contest::run(bench, &mut contestants)?;
    let latency = latency.ratio(&goal.parts[0], ("farcall, polling", &["ucx"]), "p50_us")?;
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Caller::boxed(bench, &over_rdma(bench, Wait::Adaptive), large)?,
        Box::new(Ucx::bandwidth(bench)),
        Caller::boxed(bench, &polling, large)?,
    ];
    let rate = Contest::run(bench, &mut contestants)?;
    Ok(vec![latency, rate.ratio(&goal.parts[1], ("farcall", &["ucx"]), "mb_per_s")?])
}

/// `ucx_perftest` with its arguments.
#[derive(Debug)]
struct Ucx {
    arguments: Vec<String>,
    place: Place,
    read: fn(&str) -> Result<Values>,
}

impl Ucx {
    /// Active messages there and back. As `p50_us` it has twice what the tool prints, which is half
    /// a round trip.
    fn latency(bench: &Bench) -> Self {
        let count = 3 * bench.effort.millis + 100;
        Self::new(bench, &["-t", "ucp_am_lat"], SMALL, count, |text| {
            let half = table::half_round_trip_us(text)?;
            let p50 = ("p50_us".to_owned(), 2.0 * half);
            Ok(Values::from([("half_round_trip_us".to_owned(), half), p50]))
        })
    }

    /// Large active messages, as many in flight as calls.
    fn bandwidth(bench: &Bench) -> Self {
        let count = (bench.effort.millis * BYTES_PER_MILLI / MIB as u64).max(8);
        let test = ["-t", "ucp_am_bw", "-O", &IN_FLIGHT.to_string()];
        Self::new(bench, &test, MIB, count, |text| {
            Ok(Values::from([("mb_per_s".to_owned(), table::megabytes_per_second(text)?)]))
        })
    }

    fn new(
        bench: &Bench,
        test: &[&str],
        size: usize,
        count: u64,
        read: fn(&str) -> Result<Values>,
    ) -> Self {
        // Only the last row, with a tenth of the messages before those that count.
        let numbers = [size as u64, count, count.div_ceil(10)].map(|number| number.to_string());
        let flags = ["-s", "-n", "-w"].into_iter().zip(&numbers);
        let flags = flags.flat_map(|(flag, number)| [flag, number.as_str()]);
        let arguments = test.iter().copied().chain(flags).chain(["-f"]);
        Self { arguments: arguments.map(str::to_owned).collect(), place: bench.place.clone(), read }
    }
}

/// `ucx_perftest` on a device. On Soft-RoCE UCX works with these transports only, and rejects its
/// peer's address unless told not to look at it.
fn end(device: &str, port: u16) -> Command {
    let mut command = Command::new("ucx_perftest");
    command.env("UCX_TLS", "rc_v,ud_v").env("UCX_UD_VERBS_ETH_DGID_CHECK", "n");
    command.env("UCX_NET_DEVICES", format!("{device}:1"));
    command.args(["-p", &port.to_string()]);
    command
}

impl Contestant for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn measure(&mut self) -> Result<Values> {
        let text = tool::run(
            |port| end(&self.place.server_device, port),
            |port| {
                let mut client = end(&self.place.client_device, port);
                client.args(&self.arguments).arg(&self.place.server_address);
                client
            },
        )?;
        (self.read)(&text)
    }
}
