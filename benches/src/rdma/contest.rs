//! Contestants measured in interleaved rounds, with rounds made again that something disturbed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::contestant::{Contestant, Values};
use super::perftest::Perftest;
use crate::driver::Bench;
use crate::figures::{Better, Part, PartGoal, Sides};
use crate::rounds::order;
use crate::statistics::{Spread, ratios};

/// A half round trip in microseconds from which on a round is thrown away: Soft-RoCE takes tens of
/// microseconds, and milliseconds only while a spinning program waits for the scheduler's tick.
const DISTURBED_US: f64 = 1000.0;

/// The rounds of some contestants.
#[derive(Debug)]
pub(super) struct Contest {
    sides: Vec<(String, Vec<Values>)>,
    discarded: usize,
}

impl Contest {
    /// Measures `contestants` in interleaved rounds. Each round begins with a look at how long a
    /// message takes, and does not count when that shows milliseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be measured, or more rounds are disturbed than not.
    pub(super) fn run(bench: &Bench, contestants: &mut [Box<dyn Contestant + '_>]) -> Result<Self> {
        let mut probe = Perftest::latency(bench, super::SMALL).with_count(PROBE_COUNT);
        let probe = || Ok(probe.measure()?["p50_us"] / 2.0);
        rounds(contestants, bench.effort.round_count, probe)
    }

    /// The part of a figure that is the ratio of `ours` to the best of `theirs`, round by round.
    ///
    /// # Errors
    ///
    /// Returns an error if one was not measured.
    pub(super) fn ratio(
        &self,
        goal: &PartGoal,
        (ours, theirs): (&str, &[&str]),
        key: &str,
    ) -> Result<Part> {
        let ours = self.values(ours, key)?;
        let mut best =
            self.values(theirs.first().context("no other side to compare with")?, key)?;
        for other in &theirs[1..] {
            for (best, other) in best.iter_mut().zip(self.values(other, key)?) {
                *best = match goal.better {
                    Better::Lower => best.min(other),
                    Better::Higher => best.max(other),
                };
            }
        }
        Part::new(goal, ratios(&ours, &best), self.medians())
    }

    fn values(&self, name: &str, key: &str) -> Result<Vec<f64>> {
        let side = self.sides.iter().find(|(side, _)| side == name);
        let (_, rounds) = side.with_context(|| format!("{name} was not measured"))?;
        let value = |values: &Values| values.get(key).copied();
        let values: Option<Vec<f64>> = rounds.iter().map(value).collect();
        values.with_context(|| format!("{name} has no {key}"))
    }

    /// The medians of everything that was measured, and how many rounds were thrown away.
    fn medians(&self) -> Sides {
        let discarded = Values::from([("discarded".to_owned(), self.discarded as f64)]);
        let sides = self.sides.iter().map(|(name, rounds)| (name.clone(), medians(rounds)));
        sides.chain([("rounds".to_owned(), discarded)]).collect()
    }
}

/// Number of messages in the probe at the beginning of a round.
const PROBE_COUNT: u64 = 200;

fn rounds(
    contestants: &mut [Box<dyn Contestant + '_>],
    round_count: usize,
    mut probe_us: impl FnMut() -> Result<f64>,
) -> Result<Contest> {
    let names = contestants.iter().map(|contestant| contestant.name().to_owned());
    let mut contest = Contest { sides: names.map(|n| (n, Vec::new())).collect(), discarded: 0 };
    let mut round = 0;
    while round < round_count {
        let latency = probe_us()?;
        if latency >= DISTURBED_US {
            contest.discarded += 1;
            ensure!(
                contest.discarded <= round_count,
                "the machine is too busy: a message took {latency:.0} us, and {} rounds of {} were \
                 disturbed",
                contest.discarded,
                contest.discarded + round,
            );
            continue;
        }
        for index in order(contestants.len(), round) {
            let measured = contestants[index].measure();
            let name = &contest.sides[index].0;
            let values = measured.with_context(|| format!("measuring {name}"))?;
            contest.sides[index].1.push(values);
        }
        round += 1;
    }
    Ok(contest)
}

/// The medians of what stands in `rounds`, by name.
pub(super) fn medians(rounds: &[Values]) -> Values {
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in rounds.iter().flatten() {
        by_name.entry(name).or_default().push(*value);
    }
    let median = |values: Vec<f64>| Spread::of(&values).map(|spread| spread.median);
    let medians = by_name.into_iter();
    medians.filter_map(|(name, values)| Some((name.to_owned(), median(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::goal;

    /// Gives its numbers one after the other.
    struct Scripted(&'static str, Vec<f64>);

    impl Contestant for Scripted {
        fn name(&self) -> &str {
            self.0
        }

        fn measure(&mut self) -> Result<Values> {
            ensure!(!self.1.is_empty(), "no number left");
            Ok(Values::from([("mb_per_s".to_owned(), self.1.remove(0))]))
        }
    }

    fn contestants() -> Vec<Box<dyn Contestant>> {
        vec![
            Box::new(Scripted("ours", vec![8.0, 9.0, 30.0])),
            Box::new(Scripted("theirs", vec![10.0, 9.0, 10.0])),
            Box::new(Scripted("theirs otherwise", vec![5.0, 18.0, 10.0])),
        ]
    }

    #[test]
    fn the_best_of_the_others_counts_in_each_round() {
        let contest = rounds(&mut contestants(), 3, || Ok(10.0)).unwrap();
        let goal = goal("R4").unwrap().part("").unwrap();
        let theirs: &[&str] = &["theirs", "theirs otherwise"];
        let part = contest.ratio(goal, ("ours", theirs), "mb_per_s").unwrap();
        assert_eq!(part.rounds, [0.8, 0.5, 3.0]);
        assert_eq!(part.value, 0.8);
        assert_eq!(part.sides["theirs otherwise"]["mb_per_s"], 10.0);
        assert!(contest.ratio(goal, ("ours", theirs), "p50_us").is_err());
        assert!(contest.ratio(goal, ("absent", theirs), "mb_per_s").is_err());
    }

    #[test]
    fn disturbed_rounds_are_made_again() {
        let mut latencies = [10.0, 4000.0, 12.0, 1000.0, 9.0].into_iter();
        let probe = || latencies.next().context("no latency left");
        let contest = rounds(&mut contestants(), 3, probe).unwrap();
        assert_eq!(contest.discarded, 2);
        assert_eq!(contest.medians()["rounds"]["discarded"], 2.0);
        assert!(contest.sides.iter().all(|(_, rounds)| rounds.len() == 3));
    }

    #[test]
    fn a_machine_that_stays_busy_is_an_error() {
        let error = rounds(&mut contestants(), 3, || Ok(4000.0)).unwrap_err();
        assert!(error.to_string().contains("too busy"), "{error}");
    }

    #[test]
    fn an_error_names_the_contestant() {
        let error = rounds(&mut contestants(), 4, || Ok(1.0)).unwrap_err();
        assert!(format!("{error:#}").contains("theirs otherwise"), "{error:#}");
    }
}
