//! Measurements that no figure uses, shown next to the figures: other numbers of calls in flight
//! and of connections, other runtimes, other transports, and system calls.

use anyhow::Result;

use super::SMALL;
use crate::driver::{Bench, Comparison, Pair, Setting, Side, system_calls as counted};
use crate::figures::Sides;
use crate::worker::{Load, Operation};

/// Calls in flight and connections, beside those of T2 and T3.
const SETTINGS: &[(usize, usize)] = &[(1, 1), (64, 4), (256, 4)];

/// Measures small calls of all `sides` in further settings, where every peer is wanted.
pub(super) fn measure(bench: &Bench, sides: &[Side]) -> Result<Sides> {
    let mut all = Sides::new();
    if !bench.effort.all_peers {
        return Ok(all);
    }
    for &(in_flight, connections) in SETTINGS {
        let setting = Setting::free().with_connections(connections);
        let what = format!("{in_flight} in flight, {connections} connections");
        all.extend(sides_in(bench, sides, &setting, in_flight, &what)?);
    }
    let setting = Setting::free().with_threads(0);
    all.extend(sides_in(bench, sides, &setting, 256, "256 in flight, one thread")?);
    all.extend(sides_in(bench, &paths(bench), &Setting::free(), 64, "64 in flight")?);
    Ok(all)
}

/// farcall over what does not leave the machine.
fn paths(bench: &Bench) -> Vec<Side> {
    let socket = format!("unix:///tmp/farcall-bench-{}.socket", std::process::id());
    vec![
        bench.farcall(&socket).named("farcall over a Unix socket"),
        bench.farcall("inproc://bench").named("farcall in process"),
    ]
}

fn sides_in(
    bench: &Bench,
    sides: &[Side],
    setting: &Setting,
    in_flight: usize,
    what: &str,
) -> Result<Sides> {
    let load = Load::new(Operation::Echo, SMALL, bench.effort.span()).with_in_flight(in_flight);
    let compared = Comparison::measure(sides, setting, &load, &bench.effort)?;
    let medians = compared.medians().into_iter();
    Ok(medians.map(|(name, values)| (format!("{name}, {what}"), values)).collect())
}

/// farcall's system calls for a call, by either process; nothing where they cannot be counted, with
/// the reason on standard error.
pub(super) fn system_calls(bench: &Bench, setting: &Setting, load: &Load) -> Result<Sides> {
    let mut pair = Pair::start(&bench.farcall("tcp://127.0.0.1:0"), setting)?;
    pair.load(load)?;
    let (client, server) = pair.ids();
    let Some(server) = server else { return Ok(Sides::new()) };
    let mut values = std::collections::BTreeMap::new();
    for (name, id) in [("client", client), ("server", server)] {
        match counted::count(id, || pair.load(load)) {
            Ok((sample, count)) => {
                let name = format!("{name}_system_calls_per_call");
                values.insert(name, count as f64 / sample.client.count as f64);
            }
            Err(error) => eprintln!("system calls are not counted: {error:#}"),
        }
    }
    Ok(Sides::from([("farcall, counted".to_owned(), values)]))
}
