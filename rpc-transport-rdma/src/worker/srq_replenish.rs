//! SRQ replenish: what a worker does when the device refuses receive slots. Pure.
//!
//! `ENOMEM` passes: the slots stay with the worker and go out with the next completion, or after a
//! while when none comes because nothing is posted. Peers wait meanwhile and try again, as for any
//! receiver that is not ready. A queue that takes nothing at all for long is broken, whatever it
//! says.

use std::time::Duration;

use tokio::time::Instant;

/// After how long receives are posted again that the device did not take, if no completion comes
/// first. It is about the wait of a sender that found no receive, which is 0.64 ms by default.
pub(crate) const REPLENISH_AFTER: Duration = Duration::from_millis(1);

/// How long a device may take no receive at all: several times what a peer's seven retries of an
/// ordinary receiver-not-ready take, so that peers time out first.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Since when a device takes nothing.
#[derive(Debug, Default)]
pub(crate) struct Replenish {
    refused_since: Option<Instant>,
}

/// A device has taken no receive for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device has taken no receive for {}s: {idle_count} slots wait", STUCK_AFTER.as_secs())]
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
