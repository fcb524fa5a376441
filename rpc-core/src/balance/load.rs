//! An endpoint's load by its calls: calls in flight, latency, failures.
//!
//! Every call of every thread writes here, and every pick reads, so the fields are atomic and are
//! written without a lock. Two calls that end at once may lose one of the two samples; an average
//! over thousands does not notice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The end of a call, as far as it concerns the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The endpoint answered, with whatever status the application chose.
    Answered {
        /// From the pick to the answer.
        latency: Duration,
    },
    /// The endpoint is at fault: it was not there, or failed.
    Failed,
    /// The caller gave up, which says nothing of the endpoint.
    Cancelled,
}

/// A call's verdict on its endpoint: the roster must look at it, or need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an endpoint that is a suspect stays in use until the roster is told"]
pub enum Suspicion {
    /// Nothing to do.
    None,
    /// It has failed as often in a row as ejects it. Exactly one call of those sees this.
    ConsecutiveFailures,
}

/// By how much failures make an endpoint look more loaded: one that always fails counts as 1 + 20
/// times as slow. Failing fast must not look like being fast, and an endpoint that fails now and
/// then still takes some calls, by which its recovery shows.
const FAILURE_FACTOR: f32 = 20.0;

/// The least latency that is told apart, in microseconds. A call in process takes less.
const MIN_LATENCY_US: f32 = 1.0;

/// The load of one endpoint's calls.
#[derive(Debug)]
pub struct Load {
    in_flight: AtomicU32,
    /// Failures since the last answer.
    consecutive: AtomicU32,
    /// Answers and failures of this interval: the upper and the lower half.
    interval: AtomicU64,
    /// The decayed latency in microseconds, as the bits of an `f32`; 0 before the first answer.
    latency: AtomicU32,
    /// The decayed share of failures from 0 to 1, as the bits of an `f32`.
    failures: AtomicU32,
    /// Time of the last write to the two above, in nanoseconds since `epoch`.
    written: AtomicU64,
    epoch: Instant,
    /// The period of the decay in seconds.
    decay: f32,
}

impl Load {
    pub(super) fn new(decay: Duration, epoch: Instant) -> Self {
        Self {
            in_flight: AtomicU32::new(0),
            consecutive: AtomicU32::new(0),
            interval: AtomicU64::new(0),
            latency: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            written: AtomicU64::new(0),
            epoch,
            decay: decay.as_secs_f32().max(f32::MIN_POSITIVE),
        }
    }

    /// Records that a call was sent to the endpoint.
    pub fn start(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Records that a call has ended. `ejects_at` is the number of consecutive failures that ejects
    /// an endpoint, 0 for none.
    pub fn end(&self, end: CallEnd, ejects_at: u32, now: Instant) -> Suspicion {
        let before = self.in_flight.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a call ends once, and only one that was started");
        match end {
            CallEnd::Cancelled => Suspicion::None,
            CallEnd::Answered { latency } => {
                // Read first: most calls find zero, and a line that is only read stays shared.
                if self.consecutive.load(Relaxed) != 0 {
                    self.consecutive.store(0, Relaxed);
                }
                self.interval.fetch_add(1 << 32, Relaxed);
                self.sample(Some(latency), now);
                Suspicion::None
            }
            CallEnd::Failed => {
                self.interval.fetch_add(1, Relaxed);
                self.sample(None, now);
                let count = self.consecutive.fetch_add(1, Relaxed).saturating_add(1);
                match count == ejects_at {
                    true => Suspicion::ConsecutiveFailures,
                    false => Suspicion::None,
                }
            }
        }
    }

    /// Calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Forgets the consecutive failures, as at an ejection or a return.
    pub(super) fn clear_consecutive(&self) {
        self.consecutive.store(0, Relaxed);
    }

    /// Answers and failures since the last call of this method.
    pub(super) fn take_interval(&self) -> (u32, u32) {
        let both = self.interval.swap(0, Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "two halves of 32 bits")]
        let halves = ((both >> 32) as u32, both as u32);
        halves
    }

    /// Returns the endpoint's load as a score; lower is better. `latency_us` stands in for its own
    /// latency while it has given no answer.
    pub(super) fn score(&self, latency_us: f32, now: Instant) -> f32 {
        let latency = self.latency_us(now).unwrap_or(latency_us);
        let failures = f32::from_bits(self.failures.load(Relaxed)) * self.kept(now);
        #[expect(clippy::cast_precision_loss, reason = "a load of 16 million calls is an estimate")]
        let calls = self.in_flight() as f32 + 1.0;
        calls * latency.max(MIN_LATENCY_US) * (1.0 + FAILURE_FACTOR * failures)
    }

    /// The decayed latency in microseconds, if any was measured.
    pub(super) fn latency_us(&self, now: Instant) -> Option<f32> {
        let latency = f32::from_bits(self.latency.load(Relaxed));
        (latency > 0.0).then(|| latency * self.kept(now))
    }

    /// The average latency as of the last answer, if any was measured.
    pub(super) fn latency(&self) -> Option<Duration> {
        let micros = f32::from_bits(self.latency.load(Relaxed));
        let latency = Duration::try_from_secs_f32(micros / 1e6).ok();
        latency.filter(|latency| !latency.is_zero())
    }

    /// Adds a sample to the decayed averages: an answer with its latency, or a failure. A failure
    /// leaves the latency as it is.
    fn sample(&self, latency: Option<Duration>, now: Instant) {
        let kept = self.kept(now);
        // A burst of calls within a moment must count, too: each has at least a hundredth.
        let share = (1.0 - kept).max(0.01);
        let mix = |old: f32, new: f32| old + (new - old) * share;
        let failed = f32::from_bits(self.failures.load(Relaxed));
        let outcome = if latency.is_some() { 0.0 } else { 1.0 };
        self.failures.store(mix(failed, outcome).to_bits(), Relaxed);
        if let Some(latency) = latency {
            let us = (latency.as_secs_f32() * 1e6).max(MIN_LATENCY_US);
            let old = f32::from_bits(self.latency.load(Relaxed));
            let next = if old == 0.0 { us } else { mix(old, us) };
            self.latency.store(next.to_bits(), Relaxed);
        }
        self.written.store(self.nanos(now), Relaxed);
    }

    /// The part of a value that is left of it now, from 0 to 1.
    fn kept(&self, now: Instant) -> f32 {
        let age = self.nanos(now).saturating_sub(self.written.load(Relaxed));
        (-(Duration::from_nanos(age).as_secs_f32()) / self.decay).exp()
    }

    fn nanos(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.epoch);
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY: Duration = Duration::from_secs(10);

    fn load() -> (Load, Instant) {
        let now = Instant::now();
        (Load::new(DECAY, now), now)
    }

    fn answer(load: &Load, us: u64, now: Instant) {
        load.start();
        let end = CallEnd::Answered { latency: Duration::from_micros(us) };
        assert_eq!(load.end(end, 3, now), Suspicion::None);
    }

    fn fail(load: &Load, now: Instant) -> Suspicion {
        load.start();
        load.end(CallEnd::Failed, 3, now)
    }

    #[test]
    fn a_call_in_flight_counts_and_its_end_gives_that_back() {
        let (load, now) = load();
        let idle = load.score(100.0, now);
        load.start();
        load.start();
        assert_eq!(load.in_flight(), 2);
        assert!((load.score(100.0, now) / idle - 3.0).abs() < 1e-3);
        assert_eq!(load.end(CallEnd::Cancelled, 1, now), Suspicion::None);
        assert_eq!(load.end(CallEnd::Cancelled, 1, now), Suspicion::None);
        assert_eq!((load.in_flight(), load.score(100.0, now)), (0, idle));
    }

    #[test]
    fn another_latency_stands_for_one_that_was_never_measured() {
        let (load, now) = load();
        assert!((load.score(250.0, now) - 250.0).abs() < 0.1);
        answer(&load, 900, now);
        assert!((load.score(250.0, now) - 900.0).abs() < 0.1);
    }

    #[test]
    fn an_endpoint_that_fails_fast_looks_worse_than_a_slow_one() {
        let (failing, now) = load();
        let slow = Load::new(DECAY, now);
        answer(&failing, 100, now);
        answer(&slow, 1000, now);
        for ms in 1..=2000 {
            let _ = fail(&failing, now + Duration::from_millis(10 * ms));
            answer(&slow, 1000, now + Duration::from_millis(10 * ms));
        }
        let now = now + Duration::from_secs(20);
        assert!(failing.score(1.0, now) > slow.score(1.0, now), "{failing:?}, {slow:?}");
    }

    #[test]
    fn measurements_decay_so_a_slow_endpoint_is_tried_again() {
        let (load, now) = load();
        answer(&load, 10_000, now);
        let later = load.score(1.0, now + 5 * DECAY);
        assert!(later < 100.0, "{later}");
        assert!(load.score(1.0, now + 100 * DECAY) >= MIN_LATENCY_US);
    }

    #[test]
    fn the_failure_that_completes_the_row_is_the_only_suspect() {
        let (load, now) = load();
        let row: Vec<_> = (0..5).map(|_| fail(&load, now)).collect();
        let (none, hit) = (Suspicion::None, Suspicion::ConsecutiveFailures);
        assert_eq!(row, [none, none, hit, none, none]);
        answer(&load, 1, now);
        assert_eq!(fail(&load, now), none, "an answer ends the row");
        let zero = (load.start(), load.end(CallEnd::Failed, 0, now)).1;
        assert_eq!(zero, none, "0 switches it off");
    }

    #[test]
    fn an_interval_counts_answers_and_failures_once() {
        let (load, now) = load();
        answer(&load, 1, now);
        answer(&load, 1, now);
        let _ = fail(&load, now);
        assert_eq!(load.take_interval(), (2, 1));
        assert_eq!(load.take_interval(), (0, 0));
    }
    fn assert_close(value: f32, expected: f32) {
        assert!((value / expected - 1.0).abs() < 1e-3, "{value} is not {expected}");
    }

    #[test]
    fn a_sample_counts_by_the_time_since_the_last_one() {
        let latency_after = |time| {
            let (load, now) = load();
            answer(&load, 1000, now);
            answer(&load, 2000, now + time);
            load.latency_us(now + time).unwrap()
        };
        assert_close(latency_after(DECAY), 2000.0 - 1000.0 / std::f32::consts::E);
        assert_close(latency_after(100 * DECAY), 2000.0);
        assert_close(latency_after(Duration::ZERO), 1010.0);
    }

    #[test]
    fn failures_weigh_by_their_share_which_decays() {
        let (load, epoch) = load();
        let now = epoch + 100 * DECAY;
        let _ = fail(&load, now);
        assert_close(load.score(300.0, now), 300.0 * (1.0 + FAILURE_FACTOR));
        load.start();
        assert_close(load.score(300.0, now), 2.0 * 300.0 * (1.0 + FAILURE_FACTOR));
        let left = FAILURE_FACTOR / std::f32::consts::E;
        assert_close(load.score(300.0, now + DECAY), 2.0 * 300.0 * (1.0 + left));
        // Three of four calls at the same moment fail: each counts a hundredth of the rest.
        let _ = fail(&load, now);
        answer(&load, 300, now);
        assert_close(load.score(1.0, now), 2.0 * 300.0 * (1.0 + FAILURE_FACTOR * 0.99));
    }
}
