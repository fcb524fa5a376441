//! The shared receive queue of a worker: its low watermark, and what to do when it takes no slots.
//! Pure: completions in, decisions out.
//!
//! # Watermark
//!
//! A *round* is as many completions as the queue has slots. Once a round, windows that were halved
//! may double again, and idle connections are asked for slots that others could not get; that
//! bounds what both cost, and needs no clock that would wake an idle worker.
//!
//! The device tells when the queue runs low. Slots are posted again as soon as their completions
//! are reaped, so this says that the worker is late and not that slots are missing: it is an alarm.
//! The event disarms the limit; it is armed again when the worker has caught up, because a limit
//! above the present level fires at once.
//!
//! # Replenish
//!
//! `ENOMEM` passes: the slots stay with the worker and go out with the next completion, or after a
//! while when none comes because nothing is posted. Peers wait meanwhile and try again, as for any
//! receiver that is not ready. A queue that takes nothing at all for long is broken, whatever it
//! says.

use std::time::Duration;

use tokio::time::Instant;

use crate::verbs::CompletionQueue;

/// A limit of an eighth of the queue leaves peers a few windows before they have to wait.
const LIMIT_PART: u32 = 8;

/// A worker's memory of its receive queue's level.
#[derive(Debug)]
pub(crate) struct Watermark {
    slots: u32,
    completions_in_round: usize,
    is_armed: bool,
    /// Set if the queue ran low in this round.
    is_low: bool,
    is_reported: bool,
}

impl Watermark {
    pub(crate) fn new(slots: u32) -> Self {
        // The first round is over at once.
        let completions_in_round = slots as usize;
        Self { slots, completions_in_round, is_armed: false, is_low: false, is_reported: false }
    }

    /// Counts completions; true when a round is over in which the queue did not run low.
    pub(crate) fn handle_completions(&mut self, count: usize) -> bool {
        self.completions_in_round += count;
        if count == 0 || self.completions_in_round < self.slots as usize {
            return false;
        }
        self.completions_in_round = 0;
        !std::mem::take(&mut self.is_low)
    }

    /// The limit to arm after `count` completions were found at once, if it is time.
    pub(crate) fn limit_to_arm(&mut self, count: usize) -> Option<u32> {
        let may = !self.is_armed && count < CompletionQueue::BATCH;
        self.is_armed |= may;
        may.then_some((self.slots / LIMIT_PART).max(1))
    }

    /// The device says that the queue ran low; true the first time, which is to be logged.
    pub(crate) fn handle_limit(&mut self) -> bool {
        self.is_armed = false;
        self.is_low = true;
        !std::mem::replace(&mut self.is_reported, true)
    }
}

/// After how long receives are posted again that the device did not take, if no completion comes
/// first. It is about the wait of a sender that found no receive, which is 0.64 ms by default.
pub(crate) const REPLENISH_AFTER: Duration = Duration::from_millis(1);

/// Maximum time for which a device may take no receive. It is several times as long as a peer's
/// seven retries of receiver-not-ready, so peers time out first.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Since when a device takes nothing.
#[derive(Debug, Default)]
pub(crate) struct Replenish {
    refused_since: Option<Instant>,
}

/// A device has taken no receive for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the device has accepted no receive for {}s: {idle_count} slots wait",
    STUCK_AFTER.as_secs()
)]
pub(crate) struct ReplenishStalled {
    pub(crate) idle_count: usize,
}

impl Replenish {
    /// Records an attempt that posted `posted` slots and left `idle_count`; true for the first of a
    /// row that were refused.
    ///
    /// # Errors
    ///
    /// [`ReplenishStalled`] when every attempt for long was refused.
    pub(crate) fn handle_attempt(
        &mut self,
        posted: usize,
        idle_count: usize,
        now: impl FnOnce() -> Instant,
    ) -> Result<bool, ReplenishStalled> {
        if idle_count == 0 {
            self.refused_since = None;
            return Ok(false);
        }
        let now = now();
        let is_first = self.refused_since.is_none();
        if is_first || posted > 0 {
            self.refused_since = Some(now);
        }
        let since = self.refused_since.unwrap_or(now);
        match now.duration_since(since) >= STUCK_AFTER {
            true => Err(ReplenishStalled { idle_count }),
            false => Ok(is_first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_as_many_completions_as_there_are_slots() {
        let mut watermark = Watermark::new(64);
        assert!(!watermark.handle_completions(0), "nothing has happened");
        assert!(watermark.handle_completions(1), "the first is over at once");
        assert!(!watermark.handle_completions(32));
        assert!(!watermark.handle_completions(31));
        assert!(watermark.handle_completions(1));
    }

    #[test]
    fn a_round_in_which_the_queue_ran_low_relieves_nothing() {
        let mut watermark = Watermark::new(8);
        assert!(watermark.handle_completions(8));
        assert!(watermark.handle_limit(), "is logged");
        assert!(!watermark.handle_limit(), "once");
        assert!(!watermark.handle_completions(8));
        assert!(watermark.handle_completions(8));
    }

    #[test]
    fn the_limit_is_armed_again_when_the_worker_has_caught_up() {
        let mut watermark = Watermark::new(1024);
        assert_eq!(watermark.limit_to_arm(0), Some(128));
        assert_eq!(watermark.limit_to_arm(0), None, "it is armed");
        watermark.handle_limit();
        assert_eq!(watermark.limit_to_arm(CompletionQueue::BATCH), None, "there may be more");
        assert_eq!(watermark.limit_to_arm(CompletionQueue::BATCH - 1), Some(128));
        assert_eq!(Watermark::new(3).limit_to_arm(0), Some(1));
    }

    #[test]
    fn only_a_device_that_takes_nothing_for_long_is_stuck() {
        let start = Instant::now();
        let mut replenish = Replenish::default();
        let mut attempt = |posted, idle, ms| {
            replenish.handle_attempt(posted, idle, || start + Duration::from_millis(ms))
        };
        assert_eq!(attempt(4, 0, 0), Ok(false));
        assert_eq!(attempt(0, 4, 10), Ok(true), "the first is to be told of");
        assert_eq!(attempt(0, 4, 4_000), Ok(false));
        assert_eq!(attempt(1, 3, 5_000), Ok(false), "it takes some");
        assert_eq!(attempt(0, 3, 9_999), Ok(false));
        assert_eq!(attempt(0, 3, 10_000), Err(ReplenishStalled { idle_count: 3 }));
        assert_eq!(attempt(3, 0, 10_001), Ok(false));
        assert_eq!(attempt(0, 1, 90_000), Ok(true), "another row");
    }
}
