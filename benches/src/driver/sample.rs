//! The result of one measurement of one side, and the numbers derived from it.

use std::collections::BTreeMap;

use crate::worker::{Load, LoadOutcome, Spent};

/// One measurement of one side.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The load that was asked for.
    pub load: Load,
    /// The client's report.
    pub client: LoadOutcome,
    /// The server's cost.
    pub server: Spent,
}

impl Sample {
    /// Calls, or messages of streams, a second.
    #[must_use]
    pub fn calls_per_second(&self) -> f64 {
        self.client.count as f64 / self.client.seconds
    }

    /// Payload a second, in units of a million bytes; an echo's counts once.
    #[must_use]
    pub fn megabytes_per_second(&self) -> f64 {
        self.calls_per_second() * self.load.size as f64 / 1e6
    }

    /// Processor time of both processes for a call, in microseconds.
    #[must_use]
    pub fn cpu_us_per_call(&self) -> f64 {
        (self.client.spent.cpu_us() + self.server.cpu_us()) as f64 / self.client.count as f64
    }

    /// Heap allocations of both processes for a call, where they are counted.
    #[must_use]
    pub fn allocations_per_call(&self) -> Option<f64> {
        let both = self.client.spent.allocations? + self.server.allocations?;
        Some(both as f64 / self.client.count as f64)
    }

    /// All of them by name, as they stand in the results.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let LoadOutcome { count, p50_us, p90_us, p99_us, longest_us, fairness, spent, .. } =
            self.client;
        let per_call = |sum: u64| sum as f64 / count as f64;
        let mut values = BTreeMap::from([
            ("calls_per_s".to_owned(), self.calls_per_second()),
            ("mb_per_s".to_owned(), self.megabytes_per_second()),
            ("cpu_us_per_call".to_owned(), self.cpu_us_per_call()),
            ("client_user_us_per_call".to_owned(), per_call(spent.user_us)),
            ("client_system_us_per_call".to_owned(), per_call(spent.system_us)),
            ("server_user_us_per_call".to_owned(), per_call(self.server.user_us)),
            ("server_system_us_per_call".to_owned(), per_call(self.server.system_us)),
            ("client_switches_per_call".to_owned(), per_call(spent.switches)),
            ("server_switches_per_call".to_owned(), per_call(self.server.switches)),
            ("client_peak_kib".to_owned(), spent.peak_kib as f64),
            ("server_peak_kib".to_owned(), self.server.peak_kib as f64),
        ]);
        if self.load.in_flight > 1 {
            values.insert("fairness".to_owned(), fairness);
        }
        if longest_us > 0.0 {
            let latencies = [p50_us, p90_us, p99_us, longest_us];
            let names = ["p50_us", "p90_us", "p99_us", "longest_us"];
            values.extend(names.map(str::to_owned).into_iter().zip(latencies));
        }
        values.extend(
            self.allocations_per_call().map(|count| ("allocations_per_call".into(), count)),
        );
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Operation, Span};

    fn sample() -> Sample {
        let spent =
            Spent { user_us: 300, system_us: 700, allocations: Some(40), ..Spent::default() };
        Sample {
            load: Load::new(Operation::Echo, 64, Span::Calls(10)),
            client: LoadOutcome {
                count: 10,
                seconds: 0.5,
                p50_us: 20.0,
                p90_us: 30.0,
                p99_us: 40.0,
                longest_us: 50.0,
                fairness: 1.0,
                spent,
            },
            server: Spent { user_us: 100, allocations: Some(20), ..Spent::default() },
        }
    }

    #[test]
    fn numbers_are_those_of_both_processes() {
        let sample = sample();
        assert_eq!(sample.calls_per_second(), 20.0);
        assert_eq!(sample.cpu_us_per_call(), 110.0);
        assert_eq!(sample.allocations_per_call(), Some(6.0));
        assert_eq!(sample.by_name()["server_user_us_per_call"], 10.0);
        assert_eq!(sample.by_name()["p99_us"], 40.0);
    }

    #[test]
    fn what_was_not_measured_is_not_there() {
        let mut sample = sample();
        sample.server.allocations = None;
        sample.client.longest_us = 0.0;
        assert_eq!(sample.allocations_per_call(), None);
        let values = sample.by_name();
        assert!(!values.contains_key("p50_us") && !values.contains_key("allocations_per_call"));
    }
}
