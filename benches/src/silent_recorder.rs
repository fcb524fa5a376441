//! A recorder of metrics that keeps nothing: what remains is the cost of farcall's own part.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A recorder whose handles take every value and keep none.
#[derive(Debug)]
pub(crate) struct SilentRecorder;

struct Silent;

impl CounterFn for Silent {
    fn increment(&self, _: u64) {}

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Silent {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {}
}

impl HistogramFn for Silent {
    fn record(&self, _: f64) {}
}

impl Recorder for SilentRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Silent))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Silent))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Silent))
    }
}
