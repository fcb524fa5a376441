//! The declaration of a metric, and the handles that are made of it.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, SharedString, Unit,
    with_recorder,
};

/// Set once calls are counted. It guards no other memory.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

static METADATA: Metadata<'static> = Metadata::new("farcall", Level::INFO, None);

/// The declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name. Exporters to Prometheus write `_` in place of each dot.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The unit.
    pub unit: MetricUnit,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Description of the counted thing.
    pub description: &'static str,
    /// The question of an operator that it answers.
    pub question: &'static str,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Days.
    Days,
}

impl MetricKind {
    /// Returns the name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl MetricUnit {
    /// Returns the name of the unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Days => "days",
        }
    }

    fn to_facade(self) -> Unit {
        match self {
            Self::Count | Self::Days => Unit::Count,
            Self::Seconds => Unit::Seconds,
            Self::Bytes => Unit::Bytes,
        }
    }
}

/// Bounds of histograms of time, in seconds, as A66 has them.
const SECONDS_BUCKETS: &[f64] = &[
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005,
    0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16,
    0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// Bounds of histograms of sizes, in bytes, as A66 has them.
const BYTES_BUCKETS: &[f64] = &[
    0.0,
    1024.0,
    2048.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
];

impl Metric {
    /// Declares a counter.
    #[doc(hidden)]
    #[must_use]
    pub const fn counter(
        name: &'static str,
        unit: MetricUnit,
        labels: &'static [&'static str],
        description: &'static str,
        question: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Counter, unit, labels, description, question }
    }

    /// The same declaration, of a gauge.
    #[doc(hidden)]
    #[must_use]
    pub const fn as_gauge(self) -> Self {
        Self { kind: MetricKind::Gauge, ..self }
    }

    /// The same declaration, of a histogram.
    #[doc(hidden)]
    #[must_use]
    pub const fn as_histogram(self) -> Self {
        Self { kind: MetricKind::Histogram, ..self }
    }

    /// Returns the upper bounds of the buckets of a histogram, as gRPC's proposal A66 has them. An
    /// exporter that is told none may compute quantiles instead, which cannot be added up.
    #[must_use]
    pub fn buckets(&self) -> Option<&'static [f64]> {
        match (self.kind, self.unit) {
            (MetricKind::Histogram, MetricUnit::Seconds) => Some(SECONDS_BUCKETS),
            (MetricKind::Histogram, _) => Some(BYTES_BUCKETS),
            (MetricKind::Counter | MetricKind::Gauge, _) => None,
        }
    }

    /// Describes the metric to the recorder.
    #[doc(hidden)]
    pub fn describe(&self) {
        let (name, unit) = (KeyName::from_const_str(self.name), Some(self.unit.to_facade()));
        let description = SharedString::const_str(self.description);
        with_recorder(|recorder| match self.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, description),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, description),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, description),
        });
    }

    /// The key of the series with these values of its labels, in their order.
    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        let labels = self.labels.iter().zip(values);
        let labels = labels.map(|(&name, &value)| Label::new(name, value.to_owned()));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }

    /// Returns the counter with these values of the labels, in their order.
    #[doc(hidden)]
    pub fn counter_with(&self, values: &[&str]) -> Counter {
        with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    /// Returns the gauge with these values of the labels, in their order.
    #[doc(hidden)]
    pub fn gauge_with(&self, values: &[&str]) -> Gauge {
        with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    /// Returns the histogram with these values of the labels, in their order.
    pub(super) fn histogram_with(&self, values: &[&str]) -> Histogram {
        with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }
}

/// Counts from now on, and describes `metrics` to the recorder, which is installed already.
pub fn enable(metrics: impl IntoIterator<Item = Metric>) {
    for metric in metrics {
        metric.describe();
    }
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Returns true once calls are counted.
pub(super) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}
