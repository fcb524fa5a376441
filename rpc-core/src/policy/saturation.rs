//! When to log that a limit is reached, and that it has room again.
//!
//! ```text
//!           refused: log                  taken, nothing refused for `QUIET`: log
//!   (room) ─────────────> (full, count) ──────────────────────────────────────────> (room)
//!                            │     ^
//!                            └─────┘ refused: count; log once in `REPEAT`
//! ```
//! A limit that is full refuses thousands of times a second. A line for each would fill the disk,
//! and none would leave the operator without an explanation. Time is an argument.

use std::time::{Duration, Instant};

/// How often a limit that stays full is logged: a line a minute is read, and fills no disk.
const REPEAT: Duration = Duration::from_secs(60);

/// How long nothing may be refused before the limit counts as having room again. A limit that is
/// full and has room by turns many times a second would be logged as often without it.
const QUIET: Duration = Duration::from_secs(10);

/// Whether a limit is full, as far as the log is concerned.
#[derive(Debug, Default)]
pub struct Saturation {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Room,
    Full {
        refused_count: u64,
        logged_at: Instant,
        refused_at: Instant,
    },
}

impl Saturation {
    /// Counts a refusal. `Some` when it is to be logged, with the count of refusals since the
    /// limit was reached, this one included.
    pub fn handle_refusal(&mut self, now: Instant) -> Option<u64> {
        match &mut self.state {
            State::Room => {
                self.state = State::Full { refused_count: 1, logged_at: now, refused_at: now };
                Some(1)
            }
            State::Full { refused_count, logged_at, refused_at } => {
                *refused_count += 1;
                *refused_at = now;
                let is_due = now.saturating_duration_since(*logged_at) >= REPEAT;
                if is_due {
                    *logged_at = now;
                }
                is_due.then_some(*refused_count)
            }
        }
    }

    /// Whether the last word in the log is that the limit is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.state, State::Full { .. })
    }

    /// Something was taken. `Some` when it is to be logged that the limit has room again, with the
    /// count of refusals meanwhile.
    pub fn handle_taken(&mut self, now: Instant) -> Option<u64> {
        let State::Full { refused_count, refused_at, .. } = self.state else { return None };
        if now.saturating_duration_since(refused_at) < QUIET {
            return None;
        }
        self.state = State::Room;
        Some(refused_count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_limit_is_logged_when_it_is_reached_and_when_it_has_room_again() {
        let (start, mut saturation) = (Instant::now(), Saturation::default());
        assert_eq!((saturation.handle_taken(start), saturation.is_full()), (None, false));
        assert_eq!(saturation.handle_refusal(start), Some(1));
        assert!((0..999).all(|_| saturation.handle_refusal(start + SECOND).is_none()));
        assert_eq!(saturation.handle_taken(start + 5 * SECOND), None, "it may be full again soon");
        assert_eq!(saturation.handle_refusal(start + 60 * SECOND), Some(1001));
        assert!(saturation.is_full());
        assert_eq!(saturation.handle_taken(start + 70 * SECOND), Some(1001));
        assert!(!saturation.is_full());
        assert_eq!(saturation.handle_taken(start + 71 * SECOND), None);
        assert_eq!(saturation.handle_refusal(start + 71 * SECOND), Some(1));
    }

    proptest! {
        #[test]
        fn there_are_few_lines_whatever_happens(
            steps in prop::collection::vec((0u64..2000, any::<bool>()), 1..2000),
        ) {
            let (start, mut saturation) = (Instant::now(), Saturation::default());
            let (mut now, mut lines) = (start, 0);
            for (millis, is_refused) in steps {
                now += Duration::from_millis(millis);
                let line = if is_refused {
                    saturation.handle_refusal(now)
                } else {
                    saturation.handle_taken(now)
                };
                lines += u64::from(line.is_some());
            }
            // Two lines for each time that it is quiet at least, and one a minute.
            let seconds = (now - start).as_secs();
            prop_assert!(lines <= 2 + 2 * seconds / QUIET.as_secs() + seconds / REPEAT.as_secs());
        }
    }
}
