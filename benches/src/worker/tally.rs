//! Latencies and counts of callers, added up.

use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rpc_transport_rdma::testing::jain;

use super::load::LoadOutcome;
use super::usage::Spent;

/// The count of all callers.
#[derive(Debug)]
pub struct Tally {
    /// In nanoseconds, to three digits.
    latencies: Histogram<u64>,
    count: u64,
    /// Count of each caller that was added.
    by_caller: Vec<f64>,
}

impl Tally {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// Returns an error if the histogram cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self { latencies: Histogram::new(3)?, count: 0, by_caller: Vec::new() })
    }

    /// Counts `count` calls that took as long as this, all of them together.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is beyond what the histogram can hold.
    pub fn add_calls(&mut self, latency: Duration, count: u64) -> Result<()> {
        self.latencies.record_n(u64::try_from(latency.as_nanos())?, count)?;
        self.count += count;
        Ok(())
    }

    /// Counts messages, which have no latency.
    pub fn add_messages(&mut self, count: u64) {
        self.count += count;
    }

    /// Adds what another caller has counted.
    ///
    /// # Errors
    ///
    /// Returns an error if the latencies do not fit together.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.count += other.count;
        self.by_caller.push(other.count as f64);
        Ok(())
    }

    /// Returns the report after `time`.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing was counted.
    pub fn outcome(&self, time: Duration, spent: Spent) -> Result<LoadOutcome> {
        ensure!(self.count > 0, "not one call or message in {} s", time.as_secs_f64());
        let us = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Ok(LoadOutcome {
            count: self.count,
            seconds: time.as_secs_f64(),
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            longest_us: self.latencies.max() as f64 / 1000.0,
            fairness: jain(self.by_caller.iter().copied()),
            spent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_added_up() {
        let (mut all, mut one) = (Tally::new().unwrap(), Tally::new().unwrap());
        one.add_calls(Duration::from_micros(10), 98).unwrap();
        one.add_calls(Duration::from_micros(500), 2).unwrap();
        one.add_messages(5);
        all.add(&one).unwrap();
        let outcome = all.outcome(Duration::from_millis(500), Spent::default()).unwrap();
        assert_eq!((outcome.count, outcome.seconds), (105, 0.5));
        assert_eq!(outcome.fairness, 1.0, "one caller shares with no other");
        assert!((outcome.p50_us - 10.0).abs() < 0.1 && (outcome.p99_us - 500.0).abs() < 1.0);
    }

    #[test]
    fn nothing_is_no_outcome() {
        assert!(Tally::new().unwrap().outcome(Duration::ZERO, Spent::default()).is_err());
    }
}
