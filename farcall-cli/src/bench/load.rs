//! The load: callers in a closed loop, or arrivals at a rate.
//!
//! An open loop measures each call from its arrival, whether a caller was free or not. So a server
//! that stalls makes all calls slow that arrive meanwhile, and not the few in flight alone
//! (coordinated omission).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall::Code;
use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::failure::Failure;

/// Lateness of an arrival that counts as the timer's, and not as the call's.
const TIMER_SLACK: Duration = Duration::from_micros(200);

/// Maximum number of arrivals that wait for a caller. Beyond it the schedule waits, and the calls
/// are late from their scheduled time on.
const QUEUE_LEN: usize = 100_000;

/// Time for calls in flight to end behind the run.
const GRACE: Duration = Duration::from_secs(5);

/// Longest sleep of the schedule, which looks for the end of the run in between.
const END_INTERVAL: Duration = Duration::from_millis(50);

/// Number of intervals in which calls are counted for the plot.
const INTERVALS: usize = 60;

/// The shape of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Maximum number of calls in flight.
    pub(crate) concurrency: u32,
    /// Arrivals a second; a closed loop without.
    pub(crate) rate: Option<f64>,
    pub(crate) duration: Duration,
    /// Number of calls that end the run before its duration.
    pub(crate) calls: Option<u64>,
}

/// The results of a run.
#[derive(Debug, Clone)]
pub(crate) struct Results {
    pub(crate) plan: Plan,
    pub(crate) took: Duration,
    /// Latencies in nanoseconds, those of failed and unfinished calls included.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) errors: BTreeMap<i32, u64>,
    /// Calls that had not ended behind the grace, and arrivals that found no caller.
    pub(crate) unfinished: u64,
    /// Calls that ended in each interval of the plan's duration.
    pub(crate) intervals: Vec<u64>,
}

/// A run that is under way.
#[derive(Debug)]
pub(crate) struct Load {
    plan: Plan,
    start: Instant,
    started: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    is_over: AtomicBool,
    over: Notify,
    results: Mutex<Results>,
}

impl Load {
    pub(crate) fn new(plan: Plan) -> Result<Self, Failure> {
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let results = Results {
            plan,
            took: Duration::ZERO,
            latencies,
            errors: BTreeMap::new(),
            unfinished: 0,
            intervals: vec![0; INTERVALS],
        };
        Ok(Self {
            plan,
            start: Instant::now(),
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            results: Mutex::new(results),
        })
    }

    /// Returns the number of calls that have ended, and of those that failed.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.ended.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    pub(crate) fn finish(&self) -> Results {
        self.results().clone()
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock()
    }

    /// Takes the right to start one more call; false at the end of the run.
    fn starts_call(&self) -> bool {
        let limit = self.plan.calls.unwrap_or(u64::MAX);
        !self.is_over.load(Ordering::Relaxed)
            && self.started.fetch_add(1, Ordering::Relaxed) < limit
    }

    fn record(&self, arrival: Instant, outcome: Outcome) {
        let now = Instant::now();
        let nanos = u64::try_from((now - arrival).as_nanos()).unwrap_or(u64::MAX);
        let share = (now - self.start).as_secs_f64() / self.plan.duration.as_secs_f64();
        let interval = interval(share);
        self.ended.fetch_add(1, Ordering::Relaxed);
        let mut results = self.results();
        results.latencies.saturating_record(nanos);
        if let Some(count) = results.intervals.get_mut(interval) {
            *count += 1;
        }
        match outcome {
            Outcome::Answered => return,
            Outcome::Failed(code) => *results.errors.entry(code.into()).or_default() += 1,
            Outcome::Unfinished => results.unfinished += 1,
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.results().took = self.start.elapsed();
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Answered,
    Failed(Code),
    Unfinished,
}

/// Returns the interval of a share of the duration. What ends later is in none.
fn interval(share: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates"
    )]
    let interval = (share * INTERVALS as f64) as usize;
    interval
}

/// Runs the load to its end, or until Ctrl-C.
pub(crate) async fn run<C, F>(load: Arc<Load>, call: C)
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), Code>> + Send,
{
    let arrivals = load.plan.rate.map(|rate| {
        let (sender, receiver) = mpsc::channel(QUEUE_LEN);
        let load = Arc::clone(&load);
        std::thread::spawn(move || schedule(&load, rate, &sender));
        Arc::new(tokio::sync::Mutex::new(receiver))
    });
    let mut callers = JoinSet::new();
    for _ in 0..load.plan.concurrency {
        let (load, call, arrivals) = (Arc::clone(&load), call.clone(), arrivals.clone());
        callers.spawn(async move {
            match arrivals {
                Some(arrivals) => open_loop(&load, &arrivals, call).await,
                None => closed_loop(&load, call).await,
            }
        });
    }
    tokio::select! {
        () = all_end(&mut callers) => {}
        () = tokio::time::sleep(load.plan.duration) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    load.end();
    if tokio::time::timeout(GRACE, all_end(&mut callers)).await.is_err() {
        load.over.notify_waiters();
        all_end(&mut callers).await;
    }
}

async fn all_end(callers: &mut JoinSet<()>) {
    while callers.join_next().await.is_some() {}
}

/// Makes one call after the other.
async fn closed_loop<F>(load: &Load, call: impl Fn() -> F)
where
    F: Future<Output = Result<(), Code>>,
{
    while load.starts_call() {
        measured(load, Instant::now(), call()).await;
    }
}

/// Makes a call for each arrival.
async fn open_loop<F>(
    load: &Load,
    arrivals: &tokio::sync::Mutex<mpsc::Receiver<Instant>>,
    call: impl Fn() -> F,
) where
    F: Future<Output = Result<(), Code>>,
{
    loop {
        let Some(arrival) = arrivals.lock().await.recv().await else { return };
        if load.is_over.load(Ordering::Relaxed) {
            load.record(arrival, Outcome::Unfinished);
        } else {
            measured(load, arrival, call()).await;
        }
    }
}

async fn measured(load: &Load, arrival: Instant, call: impl Future<Output = Result<(), Code>>) {
    tokio::select! {
        outcome = call => {
            load.record(arrival, outcome.map_or_else(Outcome::Failed, |()| Outcome::Answered));
        }
        () = load.over.notified() => load.record(arrival, Outcome::Unfinished),
    }
}

/// Sends arrivals at a rate until the run ends. A thread of its own: a busy runtime must not slow
/// the schedule.
fn schedule(load: &Load, rate: f64, arrivals: &mpsc::Sender<Instant>) {
    let start = Instant::now();
    for index in 0_u64.. {
        let due = start + Duration::from_secs_f64(index as f64 / rate);
        while let Some(wait) = due.checked_duration_since(Instant::now())
            && !load.is_over.load(Ordering::Relaxed)
        {
            std::thread::sleep(wait.min(END_INTERVAL));
        }
        if due > start + load.plan.duration || !load.starts_call() {
            return;
        }
        let lateness = due.elapsed().min(TIMER_SLACK);
        if arrivals.blocking_send(due + lateness).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: Option<f64>, calls: u64) -> Plan {
        let duration = Duration::from_secs(30);
        Plan { concurrency: 2, rate, duration, calls: Some(calls) }
    }

    #[tokio::test]
    async fn closed_loop_makes_the_calls_asked_for() {
        let load = Arc::new(Load::new(plan(None, 100)).unwrap());
        run(Arc::clone(&load), || async { Ok(()) }).await;
        let results = load.finish();
        assert_eq!((results.latencies.len(), results.unfinished), (100, 0));
        assert!(results.errors.is_empty());
    }

    #[tokio::test]
    async fn failed_calls_are_counted_by_code() {
        let load = Arc::new(Load::new(plan(None, 10)).unwrap());
        run(Arc::clone(&load), || async { Err(Code::NotFound) }).await;
        assert_eq!(load.finish().errors.into_iter().collect::<Vec<_>>(), [(5, 10)]);
        assert_eq!(load.progress(), (10, 10));
    }

    /// No call is answered before the last arrival. Those that found no caller show the wait, too.
    #[tokio::test]
    async fn open_loop_counts_the_wait_for_a_caller() {
        let load = Arc::new(Load::new(plan(Some(1000.0), 50)).unwrap());
        let arrivals = Arc::clone(&load);
        let call = move || {
            let arrivals = Arc::clone(&arrivals);
            async move {
                while arrivals.started.load(Ordering::Relaxed) < 50 {
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        };
        run(Arc::clone(&load), call).await;
        let latencies = load.finish().latencies;
        assert_eq!(latencies.len(), 50);
        // Of arrivals each millisecond, only the last ten can take less than ten.
        let fast = latencies.count_between(0, 10_000_000);
        assert!(fast <= 12, "{fast} calls do not show the wait");
    }
}
