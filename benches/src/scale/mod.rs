//! The figures C1 to C7: many connections to one server.
//!
//! `calls` and `idle` are what a connection costs that is used or not, `incast` what many large
//! messages at once do, `beyond` what happens to connections that a lane has no place for. Those
//! run real processes, over TCP on the host and over RDMA devices; `simulated` goes to 100,000
//! connections with the machines that share receive slots.

mod beyond;
mod calls;
mod descriptors;
mod idle;
mod incast;
mod simulated;

use anyhow::{Context as _, Result, bail};

use crate::driver::{Bench, Side};
use crate::figures::{Goal, Part};
use crate::rdma::caller::{Wait, over_rdma, over_tcp};

/// The length of a small payload.
const SMALL: usize = 64;

const MIB: usize = 1 << 20;

/// Measures a figure of these groups.
///
/// # Errors
///
/// Returns an error if it cannot be measured.
pub fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    match goal.number {
        "C1" => calls::over_tcp(bench, goal),
        "C2" => idle::measure(bench, goal),
        "C3" => incast::over_tcp(bench, goal),
        "C4" => simulated::measure(bench, goal),
        "C5" => calls::over_rdma(bench, goal),
        "C6" => beyond::measure(bench, goal),
        "C7" => incast::over_rdma(bench, goal),
        other => bail!("nothing here measures {other}"),
    }
}

/// A part's name is what it was measured at, a colon, and what was measured.
fn split(name: &'static str) -> Result<(&'static str, &'static str)> {
    name.split_once(": ").with_context(|| format!("{name:?} does not say what it is measured at"))
}

/// The number of connections that a part is measured with.
fn connections(name: &'static str) -> Result<(usize, &'static str)> {
    let (count, what) = split(name)?;
    Ok((count.parse().with_context(|| format!("{count:?} is no number of connections"))?, what))
}

/// farcall over RDMA, and over TCP on the same cable behind tonic on that.
fn on_devices(bench: &Bench) -> Result<Vec<Side>> {
    let tonic = bench.peer_at("tonic", &bench.place.address("tcp"))?.named(TONIC_OVER_TCP);
    let ours = over_rdma(bench, Wait::Adaptive).named("farcall over RDMA");
    Ok(vec![ours, tonic, over_tcp(bench)])
}

const TONIC_OVER_TCP: &str = "tonic over TCP";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::GOALS;

    #[test]
    fn parts_say_what_they_are_measured_at() {
        for number in ["C1", "C2", "C4", "C5"] {
            let goal = GOALS.iter().find(|goal| goal.number == number).unwrap();
            assert!(goal.parts.iter().all(|part| connections(part.name).is_ok()), "{number}");
        }
        assert_eq!(connections("1000: p99").unwrap(), (1000, "p99"));
        assert!(connections("many: p99").is_err() && connections("p99").is_err());
    }
}
