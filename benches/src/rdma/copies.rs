//! R9: how often farcall copies a large payload that lies in memory which it lent.
//!
//! The transport counts every byte that it writes into memory to be sent and every byte that it
//! copies from one buffer to another.

use anyhow::{Context as _, Result};

use super::MIB;
use super::caller::{Wait, over_rdma, setting};
use crate::driver::{Bench, Pair, Side};
use crate::figures::{Goal, Part, Sides};
use crate::worker::{Counts, Load, Operation, Span};

/// Calls of a round.
const CALLS: u64 = 20;

/// R9: uploads and downloads; of each side, the direction in which it copies more.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let plain = over_rdma(bench, Wait::Adaptive);
    let lent = plain.clone().with_arguments(&["--lent"]);
    let (client, server) = copies(bench, &lent)?;
    let (plain_client, plain_server) = copies(bench, &plain)?;
    let sides = |plain: &[f64]| {
        let copies = plain.first().map(|&copies| ("copies".to_owned(), copies));
        Sides::from([("memory of the application's own".into(), copies.into_iter().collect())])
    };
    let client = Part::new(&goal.parts[0], client, sides(&plain_client))?;
    Ok(vec![client, Part::new(&goal.parts[1], server, sides(&plain_server))?])
}

/// The copies by the client and by the server, round by round.
fn copies(bench: &Bench, side: &Side) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut pair = Pair::start(side, &setting())?;
    let mut both = (Vec::new(), Vec::new());
    for _ in 0..bench.effort.round_count {
        let up = copies_of(&mut pair, Operation::Upload)?;
        let down = copies_of(&mut pair, Operation::Download)?;
        both.0.push(up.0.max(down.0));
        both.1.push(up.1.max(down.1));
    }
    Ok(both)
}

fn copies_of(pair: &mut Pair, operation: Operation) -> Result<(f64, f64)> {
    let before = pair.counts()?;
    pair.load(&Load::new(operation, MIB, Span::Calls(CALLS)))?;
    let after = pair.counts()?;
    Ok((payloads(&before.0, &after.0)?, payloads(&before.1, &after.1)?))
}

/// Bytes copied between two counts, in payloads of a call, to a hundredth: what is below that is
/// headers, keys and releases.
fn payloads(before: &Counts, after: &Counts) -> Result<f64> {
    let copied = |counts: &Counts| {
        let of = |name| counts.get(name).with_context(|| format!("no side counted {name}"));
        Ok::<u64, anyhow::Error>(of("copied_bytes")? + of("written_bytes")?)
    };
    let bytes = copied(after)?.saturating_sub(copied(before)?);
    let payloads = bytes as f64 / (CALLS * MIB as u64) as f64;
    Ok((payloads * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(copied: u64, written: u64) -> Counts {
        Counts::from([("copied_bytes".into(), copied), ("written_bytes".into(), written)])
    }

    #[test]
    fn headers_are_no_copy_and_payloads_are() {
        let before = counts(100, 200);
        let of = |copied, written| payloads(&before, &counts(copied, written)).unwrap();
        assert_eq!(of(100 + CALLS * 100, 200 + CALLS * 300), 0.0);
        assert_eq!(of(100, 200 + CALLS * (MIB as u64 + 300)), 1.0);
        assert_eq!(of(100 + CALLS * MIB as u64 / 2, 200), 0.5);
    }

    #[test]
    fn a_count_that_is_missing_is_an_error() {
        assert!(payloads(&Counts::new(), &counts(1, 1)).is_err());
    }
}
