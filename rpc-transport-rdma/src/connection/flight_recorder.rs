//! The flight recorder of a connection: its last work requests, for the log line of a failure.
//!
//! Recording costs a few stores for each request, and one look at the clock for each post. Nothing
//! is allocated, and nothing is formatted before a failure asks for it.

use std::fmt::{self, Write as _};
use std::time::Duration;

use tokio::time::Instant;

use crate::proto::wire::kind_name;
use crate::verbs::{CompletionError, Work, WorkStatus};

/// Requests that are kept: those in flight on the READ queue pairs, and as many messages.
const LEN: usize = 64;

/// The last requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct FlightRecorder {
    /// A ring.
    requests: Box<[Option<Request>; LEN]>,
    /// Position of the next request in the ring.
    next: usize,
    /// The queue pairs: that of the messages, and those of READs.
    queues: Vec<QueueRecord>,
    is_reported: bool,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    kind: RequestKind,
    len: u32,
    /// Index of its queue pair.
    queue: usize,
    /// Number of requests that were posted to its queue pair before.
    position: u64,
    posted_at: Instant,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A message, by the first byte of its header.
    Send(u8),
    Read,
    Bind,
    Invalidate,
}

/// One queue pair, whose requests complete in order.
#[derive(Debug, Clone)]
struct QueueRecord {
    number: u32,
    posted: u64,
    /// Requests that came back, and those up to the last that succeeded.
    ended: u64,
    completed: u64,
    /// The first that failed by itself.
    failed: Option<(u64, WorkStatus)>,
}

impl FlightRecorder {
    /// A recorder for queue pairs of these numbers.
    pub(super) fn new(numbers: impl Iterator<Item = u32>) -> Self {
        let (posted, ended, completed, failed) = (0, 0, 0, None);
        let queue = |number| QueueRecord { number, posted, ended, completed, failed };
        let queues = numbers.map(queue).collect();
        Self { requests: Box::new([None; LEN]), next: 0, queues, is_reported: false }
    }

    /// Records work that is about to be posted to the queue pair at `queue`.
    pub(super) fn record_work<'a>(
        &mut self,
        queue: usize,
        batch: impl Iterator<Item = &'a Work>,
        now: Instant,
    ) {
        for work in batch {
            let (kind, len) = match work {
                Work::Send { slot, len, .. } => {
                    (RequestKind::Send(slot.first().copied().unwrap_or(0)), *len)
                }
                Work::Read { len, .. } => (RequestKind::Read, *len),
                Work::Bind(_) => (RequestKind::Bind, 0),
                Work::Invalidate(_) => (RequestKind::Invalidate, 0),
            };
            self.record(queue, kind, len, now);
        }
    }

    fn record(&mut self, queue: usize, kind: RequestKind, len: u32, now: Instant) {
        let Some(record) = self.queues.get_mut(queue) else { return };
        let position = record.posted;
        record.posted += 1;
        self.requests[self.next] = Some(Request { kind, len, queue, position, posted_at: now });
        self.next = (self.next + 1) % LEN;
    }

    /// Forgets the last `count` requests of a queue pair, which the device did not take.
    pub(super) fn retract(&mut self, queue: usize, count: usize) {
        let Some(record) = self.queues.get_mut(queue) else { return };
        record.posted -= count as u64;
        for _ in 0..count.min(LEN) {
            self.next = (self.next + LEN - 1) % LEN;
            self.requests[self.next] = None;
        }
    }

    /// Records the end of the oldest request of a queue pair.
    pub(super) fn complete(&mut self, queue: usize, outcome: Result<(), CompletionError>) {
        let Some(record) = self.queues.get_mut(queue) else { return };
        let position = record.ended;
        record.ended += 1;
        match outcome {
            Ok(()) => record.completed = record.ended,
            // What is flushed follows a failure, its own or that of another queue pair.
            Err(error) if !error.is_flush() && record.failed.is_none() => {
                record.failed = Some((position, error.status));
            }
            Err(_) => {}
        }
    }

    /// Returns the last requests as they are now, once in the life of a connection.
    pub(super) fn take_report(&mut self, now: Instant) -> Option<FlightReport> {
        let was_reported = std::mem::replace(&mut self.is_reported, true);
        (!was_reported).then(|| FlightReport { recorder: self.clone(), at: now })
    }

    /// Describes the last requests, the latest first.
    pub(super) fn describe(&self, now: Instant) -> String {
        let (older, newer) = (&self.requests[..self.next], &self.requests[self.next..]);
        let mut text = String::new();
        for request in older.iter().rev().chain(newer.iter().rev()).flatten() {
            let Request { kind, len, queue, position, posted_at } = *request;
            let queue = &self.queues[queue];
            let (number, state) = (queue.number, queue.state(position));
            let age = now.saturating_duration_since(posted_at);
            let age = Duration::from_micros(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
            let separator = if text.is_empty() { "" } else { "; " };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{separator}{kind} {len} B on queue pair {number} {age:?} ago: {state}"
            );
        }
        text
    }
}

/// A recorder's requests at one time. Its `Debug` describes them, which takes longer than a copy:
/// the connection's lock is not held for it, nor is it done for a line that is left out.
pub(super) struct FlightReport {
    recorder: FlightRecorder,
    at: Instant,
}

impl fmt::Debug for FlightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.recorder.describe(self.at))
    }
}

impl QueueRecord {
    fn state(&self, position: u64) -> String {
        match self.failed {
            Some((failed, status)) if failed == position => status.to_string(),
            _ if position < self.completed => "done".to_owned(),
            _ if position < self.ended => "flushed".to_owned(),
            _ => "in flight".to_owned(),
        }
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(first) => write!(f, "SEND ({})", kind_name(*first)),
            Self::Read => f.write_str("READ"),
            Self::Bind => f.write_str("BIND"),
            Self::Invalidate => f.write_str("INVALIDATE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Completion, RawCompletion};

    const FRAME: RequestKind = RequestKind::Send(1);

    fn failure(status: u32) -> Result<(), CompletionError> {
        let raw = RawCompletion { status, ..RawCompletion::default() };
        Completion::from_raw(&raw).error().map_or(Ok(()), Err)
    }

    #[test]
    fn the_latest_request_comes_first_with_its_state() {
        let (mut recorder, now) = (FlightRecorder::new([16, 17].into_iter()), Instant::now());
        recorder.record(0, FRAME, 64, now);
        recorder.record(1, RequestKind::Read, 4096, now);
        recorder.record(0, RequestKind::Send(0x83), 16, now + Duration::from_millis(1));
        recorder.complete(0, Ok(()));
        let later = now + Duration::from_millis(3);
        assert_eq!(
            recorder.describe(later),
            "SEND (release) 16 B on queue pair 16 2ms ago: in flight; \
             READ 4096 B on queue pair 17 3ms ago: in flight; \
             SEND (frame) 64 B on queue pair 16 3ms ago: done"
        );
        // The READ failed, and what the other queue pair had is flushed.
        let (flushed, retries_exceeded) = (5, 12);
        recorder.complete(1, failure(retries_exceeded));
        recorder.complete(0, failure(flushed));
        let text = format!("{:?}", recorder.take_report(later).unwrap());
        assert!(text.contains("on queue pair 17 3ms ago: retries exceeded"), "{text}");
        assert!(text.contains("on queue pair 16 2ms ago: flushed"), "{text}");
        assert!(recorder.take_report(later).is_none(), "once");
    }

    #[test]
    fn requests_before_a_failed_one_are_not_the_cause() {
        let (mut recorder, now) = (FlightRecorder::new([16].into_iter()), Instant::now());
        (0..2).for_each(|_| recorder.record(0, FRAME, 64, now));
        recorder.complete(0, failure(5));
        recorder.complete(0, failure(12));
        let text = recorder.describe(now);
        let (last, first) = text.split_once("; ").unwrap();
        assert!(last.contains("retries exceeded") && first.contains("flushed"), "{text}");
    }

    #[test]
    fn the_ring_keeps_the_last_requests_that_were_taken() {
        let (mut recorder, now) = (FlightRecorder::new([16].into_iter()), Instant::now());
        for len in 0..100 {
            recorder.record(0, FRAME, len, now);
        }
        recorder.retract(0, 3);
        let text = recorder.describe(now);
        let lens: Vec<_> = text.split("; ").map(|it| it.split(' ').nth(2).unwrap()).collect();
        assert_eq!((lens.len(), lens[0], lens[60]), (61, "96", "36"));
        recorder.record(0, RequestKind::Bind, 0, now);
        recorder.complete(0, Ok(()));
        assert!(recorder.describe(now).starts_with("BIND 0 B on queue pair 16 0ns ago: in flight"));
    }
}
