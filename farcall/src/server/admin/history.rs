//! The last minutes of a server: one sample every five seconds.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use rpc_core::metrics::FallbackKind;
use rpc_core::server::{MethodCalls, latency_bound};

use super::api::{self, Bucket, PathCount, SERVICE, Sample};
use super::channelz::messages::CHANNELZ;
use crate::ConnectionInfo;

/// Time between two samples.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// Number of samples that are kept: five minutes.
const SAMPLES_MAX: usize = 60;

/// Samples, and the counts at the last one.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<(Instant, Totals)>,
    samples: VecDeque<Sample>,
}

/// Counts since the server was built, without calls of operators.
#[derive(Debug, Default)]
struct Totals {
    calls: u64,
    failed: u64,
    /// Of unary calls: the time of a stream is no latency.
    latency: Vec<u64>,
}

impl Totals {
    fn new(methods: &[MethodCalls]) -> Self {
        let mut totals = Self::default();
        for calls in methods.iter().filter(|calls| !is_own(calls)) {
            totals.calls += calls.total();
            totals.failed += calls.total() - calls.codes[0];
            if calls.is_unary() {
                totals.latency.resize(calls.latency.len(), 0);
                let sums = totals.latency.iter_mut().zip(&calls.latency);
                sums.for_each(|(sum, count)| *sum += count);
            }
        }
        totals
    }

    /// Returns the unary calls since `before`, by time.
    fn latency_since(&self, before: &Self) -> Vec<Bucket> {
        let earlier = before.latency.iter().copied().chain(std::iter::repeat(0));
        let counts = self.latency.iter().zip(earlier).enumerate();
        let bucket = |(index, (now, earlier)): (usize, (&u64, u64))| Bucket {
            below_us: latency_bound(index),
            count: now.saturating_sub(earlier),
        };
        counts.map(bucket).collect()
    }
}

impl History {
    /// Adds a sample, unless another listener has added one within this interval.
    pub(super) fn add(
        &mut self,
        now: Instant,
        unix_ms: u64,
        methods: &[MethodCalls],
        paths: Vec<PathCount>,
    ) {
        let is_early = |last: &Instant| now.saturating_duration_since(*last) < INTERVAL / 2;
        if self.last.as_ref().is_some_and(|(last, _)| is_early(last)) {
            return;
        }
        let totals = Totals::new(methods);
        if let Some((last, before)) = &self.last {
            let latency = totals.latency_since(before);
            let quantile = |share| api::quantile(&latency, share).unwrap_or_default();
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample {
                unix_ms,
                calls: totals.calls.saturating_sub(before.calls),
                failed: totals.failed.saturating_sub(before.failed),
                p50_us: quantile(0.5),
                p99_us: quantile(0.99),
                paths,
                interval_ms: u32::try_from(millis(now - *last)).unwrap_or(u32::MAX),
            });
        }
        self.last = Some((now, totals));
    }

    /// Returns the samples, the oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().cloned().collect()
    }
}

/// Returns true for methods of the services for operators.
pub(super) fn is_own(calls: &MethodCalls) -> bool {
    let Some(method) = calls.method else { return false };
    let mut own = [&SERVICE, &CHANNELZ].into_iter().flat_map(|service| service.methods);
    own.any(|own| own.path == method.path)
}

/// Counts connections by path.
pub(super) fn paths<'a>(infos: impl Iterator<Item = &'a ConnectionInfo>) -> Vec<PathCount> {
    let mut counts = BTreeMap::<_, u64>::new();
    for info in infos {
        *counts.entry((info.transport, FallbackKind::new(info).label())).or_default() += 1;
    }
    let counts = counts.into_iter().map(|((transport, fallback), count)| PathCount {
        transport: transport.to_owned(),
        fallback: fallback.to_owned(),
        count,
    });
    counts.collect()
}

/// Returns whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns milliseconds since 1970.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map(millis).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallKind, Idempotency, MethodDescriptor};

    static UNARY: MethodDescriptor = method("/t.T/Unary", CallKind::Unary);
    static STREAM: MethodDescriptor = method("/t.T/Stream", CallKind::Streaming);
    static OWN: MethodDescriptor = method("/farcall.admin.v1.Admin/GetSnapshot", CallKind::Unary);

    const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
        MethodDescriptor::new(path, kind, Idempotency::Unknown)
    }

    /// Calls of a method that took less than 8 us.
    fn calls(method: &'static MethodDescriptor, good: u64, failed: u64) -> MethodCalls {
        let mut calls = MethodCalls { method: Some(method), codes: [0; 17], latency: vec![0; 104] };
        (calls.codes[0], calls.codes[13], calls.latency[7]) = (good, failed, good + failed);
        calls
    }

    #[test]
    fn samples_have_the_calls_of_their_interval() {
        let (mut history, start) = (History::default(), Instant::now());
        let mut add = |count, methods: &[MethodCalls]| {
            history.add(start + count * INTERVAL, u64::from(count), methods, Vec::new());
            history.samples().last().cloned()
        };
        assert_eq!(add(0, &[calls(&UNARY, 5, 0)]), None, "the first has no interval");
        let all = [calls(&UNARY, 8, 1), calls(&STREAM, 2, 0), calls(&OWN, 9, 9)];
        let sample = add(1, &all).expect("a sample");
        assert_eq!((sample.calls, sample.failed, sample.p50_us, sample.p99_us), (6, 1, 8, 8));
        let sample = add(2, &all).expect("a sample");
        assert_eq!((sample.unix_ms, sample.calls, sample.p99_us), (2, 0, 0));
    }

    #[test]
    fn samples_are_bounded_and_once_an_interval() {
        let (mut history, start) = (History::default(), Instant::now());
        for count in 0..4 * 70 {
            history.add(start + count * INTERVAL / 4, u64::from(count), &[], Vec::new());
        }
        let samples = history.samples();
        let times: Vec<_> = samples.iter().map(|sample| sample.unix_ms).collect();
        assert_eq!(samples.len(), SAMPLES_MAX);
        assert!(times.is_sorted_by(|one, next| one + 2 == *next), "{times:?}");
    }
}
