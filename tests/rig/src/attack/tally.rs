//! Counts an honest client's calls: how many, how they ended, and how long they took.
//!
//! Time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::message::Summary;

/// The most durations that a period keeps: more than the calls of a minute, 32 MiB never.
const SAMPLES_MAX: usize = 1 << 20;

/// The longest text of an error that is kept.
const ERROR_LEN_MAX: usize = 300;

/// The group that a call is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Over a connection that was there before.
    Established,
    /// Over a new connection.
    Newcomer,
    /// To the hostile server, or to the handler that blocks. Its duration says nothing.
    Exposed,
}

/// The calls since the last cut, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Tally {
    summary: Summary,
    durations: Vec<Duration>,
    waiting: BTreeMap<u64, Instant>,
    next: u64,
}

/// A call that waits for its end.
#[derive(Debug)]
#[must_use]
pub(super) struct Waiting {
    id: u64,
    group: Group,
    began: Instant,
}

impl Tally {
    /// A call begins.
    pub(super) fn begin(&mut self, group: Group, now: Instant) -> Waiting {
        let id = self.next;
        self.next += 1;
        if group == Group::Established {
            self.waiting.insert(id, now);
        }
        Waiting { id, group, began: now }
    }

    /// A call ends.
    pub(super) fn end(&mut self, call: &Waiting, now: Instant, result: Result<(), String>) {
        self.waiting.remove(&call.id);
        if call.group == Group::Established && self.durations.len() < SAMPLES_MAX {
            self.durations.push(now.saturating_duration_since(call.began));
        }
        let summary = &mut self.summary;
        let (count, errors) = match call.group {
            Group::Established => (&mut summary.calls, &mut summary.errors),
            Group::Newcomer => (&mut summary.newcomers, &mut summary.newcomer_errors),
            Group::Exposed => (&mut summary.exposed, &mut summary.exposed_errors),
        };
        // Every exposed call counts, since most of them have to fail.
        if result.is_ok() || call.group == Group::Exposed {
            *count += 1;
        }
        if let Err(error) = result {
            *errors += 1;
            if call.group != Group::Exposed {
                let short = || error.chars().take(ERROR_LEN_MAX).collect();
                summary.first_error.get_or_insert_with(short);
            }
        }
    }

    /// Returns the events since the last cut, or since the beginning.
    pub(super) fn cut(&mut self, now: Instant) -> Summary {
        let mut durations = std::mem::take(&mut self.durations);
        durations.extend(self.waiting.values().map(|began| now.saturating_duration_since(*began)));
        durations.sort_unstable();
        let mut summary = std::mem::take(&mut self.summary);
        summary.p50_us = percentile(&durations, 50);
        summary.p99_us = percentile(&durations, 99);
        summary.max_us = percentile(&durations, 100);
        summary
    }
}

/// A tally that the client's tasks share.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock()
    }

    /// Counts a call.
    pub(super) async fn count(&self, group: Group, call: impl Future<Output = Result<(), String>>) {
        let waiting = self.lock().begin(group, Instant::now());
        let result = call.await;
        self.lock().end(&waiting, Instant::now(), result);
    }
}

/// A percentile of sorted durations, in microseconds.
fn percentile(sorted: &[Duration], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    let duration = sorted.get(rank).copied().unwrap_or_default();
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_apart_and_a_cut_begins_anew() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        for (group, result) in [
            (Group::Established, Ok(())),
            (Group::Established, Err("no".to_owned())),
            (Group::Newcomer, Err("later".to_owned())),
            (Group::Exposed, Err("as it must".to_owned())),
        ] {
            let call = tally.begin(group, start);
            tally.end(&call, start + Duration::from_millis(2), result);
        }
        let summary = tally.cut(start);
        assert_eq!((summary.calls, summary.errors), (1, 1));
        assert_eq!((summary.newcomers, summary.newcomer_errors), (0, 1));
        assert_eq!((summary.exposed, summary.exposed_errors), (1, 1));
        assert_eq!(summary.first_error.as_deref(), Some("no"));
        assert_eq!(summary.p99_us, 2000);
        assert_eq!(tally.cut(start), Summary::default());
    }

    /// A call that an attack holds up for the whole period must show in it.
    #[test]
    fn a_call_that_waits_counts_with_its_age() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let call = tally.begin(Group::Established, start);
        let summary = tally.cut(start + Duration::from_secs(3));
        assert_eq!((summary.calls, summary.max_us), (0, 3_000_000));
        tally.end(&call, start + Duration::from_secs(4), Ok(()));
        assert_eq!(tally.cut(start + Duration::from_secs(5)).max_us, 4_000_000);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&sorted, percent)), [100, 198, 200]);
        assert_eq!(percentile(&[], 99), 0);
    }
}
