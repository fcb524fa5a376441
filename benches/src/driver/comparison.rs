//! Sides measured against each other, in interleaved rounds.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::effort::Effort;
use super::pair::Pair;
use super::sample::Sample;
use super::setting::Setting;
use super::side::Side;
use crate::figures::{Part, PartGoal, Sides};
use crate::rounds::interleaved;
use crate::statistics::{Spread, ratios};
use crate::worker::Load;

/// The number of a sample that a figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The median latency.
    P50,
    /// Processor time of both processes for a call.
    CpuPerCall,
    /// The latency that 99 of a hundred calls do not exceed.
    P99,
    /// Calls or messages a second.
    Rate,
}

impl Metric {
    /// Its value in a sample.
    #[must_use]
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::P50 => sample.client.p50_us,
            Self::P99 => sample.client.p99_us,
            Self::CpuPerCall => sample.cpu_us_per_call(),
            Self::Rate => sample.calls_per_second(),
        }
    }
}

/// The measurements of some sides under one load: for each side its samples, round by round.
#[derive(Debug)]
pub struct Comparison {
    sides: Vec<(String, Vec<Sample>)>,
}

impl Comparison {
    /// Starts all sides, warms them up and measures them in interleaved rounds.
    ///
    /// # Errors
    ///
    /// Returns an error if a side cannot be started or measured.
    pub fn measure(
        sides: &[Side],
        setting: &Setting,
        load: &Load,
        effort: &Effort,
    ) -> Result<Self> {
        let sides: Vec<_> = sides.iter().map(|side| (side.clone(), *setting)).collect();
        Self::measure_each(&sides, load, effort)
    }

    /// The same where each side has a setting of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if a side cannot be started or measured.
    pub fn measure_each(sides: &[(Side, Setting)], load: &Load, effort: &Effort) -> Result<Self> {
        let mut pairs = Vec::new();
        for (side, setting) in sides {
            let mut pair = Pair::start(side, setting)?;
            pair.load(&Load { span: effort.warm_up(), ..*load })?;
            pairs.push(pair);
        }
        let load = Load { span: effort.span(), ..*load };
        let samples =
            interleaved(pairs.len(), effort.round_count, |index| pairs[index].load(&load))?;
        let names = sides.iter().map(|(side, _)| side.name.clone());
        Ok(Self { sides: names.zip(samples).collect() })
    }

    /// The part of a figure that is the ratio of the first side to the one called `to`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such side.
    pub fn ratio(&self, goal: &PartGoal, to: &str, metric: Metric) -> Result<Part> {
        Part::new(goal, self.ratios(to, metric)?, self.medians())
    }

    /// The part of a figure that is the ratio of the side called `of` to the one called `to`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such side.
    pub fn ratio_of(&self, of: &str, goal: &PartGoal, to: &str, metric: Metric) -> Result<Part> {
        let measured = ratios(&self.values(of, metric)?, &self.values(to, metric)?);
        Part::new(goal, measured, self.medians())
    }

    /// The ratios of the first side to the one called `to`, round by round.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such side.
    pub fn ratios(&self, to: &str, metric: Metric) -> Result<Vec<f64>> {
        let (first, _) = self.sides.first().context("a comparison without sides")?;
        Ok(ratios(&self.values(first, metric)?, &self.values(to, metric)?))
    }

    fn values(&self, side: &str, metric: Metric) -> Result<Vec<f64>> {
        let measured = self.sides.iter().find(|(name, _)| name == side);
        let (_, samples) = measured.with_context(|| format!("{side} was not measured"))?;
        Ok(samples.iter().map(|sample| metric.of(sample)).collect())
    }

    /// The medians of everything that was measured of each side.
    #[must_use]
    pub fn medians(&self) -> Sides {
        self.sides.iter().map(|(name, samples)| (name.clone(), medians(samples))).collect()
    }
}

/// The medians of what is in the samples, by name.
pub(crate) fn medians(samples: &[Sample]) -> BTreeMap<String, f64> {
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in samples.iter().flat_map(Sample::by_name) {
        by_name.entry(name).or_default().push(value);
    }
    let median = |values: Vec<f64>| Spread::of(&values).map(|spread| spread.median);
    by_name.into_iter().filter_map(|(name, values)| Some((name, median(values)?))).collect()
}
