//! The values of one observation.

use std::collections::BTreeMap;

use rpc_core::metrics::{Metric, MetricKind};

/// A series: the name of its metric, and the values of its labels.
pub(super) type Series = (&'static str, Vec<String>);

/// The gauges that were shown so far.
pub(super) type Shown = BTreeMap<Series, Metric>;

/// The values of one observation. What is added twice is summed up, so that two servers of one
/// name are one.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<Series, (Metric, f64)>);

impl Samples {
    /// Adds to the series with these values of its labels.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53 or need no last bit")]
    pub(super) fn add(&mut self, metric: Metric, labels: &[&str], value: u64) {
        self.add_number(metric, labels, value as f64);
    }

    /// Adds a count of things.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    pub(super) fn add_len(&mut self, metric: Metric, labels: &[&str], len: usize) {
        self.add(metric, labels, len as u64);
    }

    /// Adds a number that may be negative.
    pub(super) fn add_number(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.0.entry((metric.name, labels)).or_insert((metric, 0.0)).1 += value;
    }

    /// Adds a number of which the greatest holds.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    pub(super) fn add_greatest(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let (_, greatest) = self.0.entry((metric.name, labels)).or_insert((metric, value));
        *greatest = greatest.max(value);
    }

    /// Shows the values. Gauges of `shown`, the observations before, that have no value any more
    /// become 0. Handles are made anew each time, since an exporter may have removed idle series.
    pub(super) fn publish(self, shown: &mut Shown) {
        for (series, metric) in &*shown {
            if !self.0.contains_key(series) {
                metric.gauge_with(&labels(series)).set(0.0);
            }
        }
        for (series, (metric, value)) in self.0 {
            match metric.kind {
                MetricKind::Gauge => {
                    metric.gauge_with(&labels(&series)).set(value);
                    shown.insert(series, metric);
                }
                // While a connection closes, the server counts it neither as open nor as ended. The
                // counter keeps its value meanwhile.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sums")]
                MetricKind::Counter => {
                    metric.counter_with(&labels(&series)).absolute(value as u64);
                }
                MetricKind::Histogram => {}
            }
        }
    }
}

fn labels(series: &Series) -> Vec<&str> {
    series.1.iter().map(String::as_str).collect()
}
