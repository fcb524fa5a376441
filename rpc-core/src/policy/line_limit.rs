//! Limits on log lines: the rate of one kind of line, and the lines about a limit that is reached.
//!
//! A peer that connects and breaks the protocol ten thousand times a second writes ten thousand
//! lines a second: the disk fills, and the lines that matter are lost among them. So lines of one
//! kind pay with tokens: [`BURST`] of them at once, then one every [`INTERVAL`]. A line that finds
//! no token is counted, and the next line that finds one says how many were left out. If none
//! follows, a line that says only the count takes the token that the next line would have taken,
//! so that the count of a flood that has ended is not lost. The tokens are a point in time, as in
//! GCRA: `paid_until` is when the bucket would be full again.
//!
//! A limit that is full refuses thousands of times a second. None of these lines would leave the
//! operator without an explanation, so [`Saturation`] says when one is due:
//!
//! ```text
//!           refused: log                  taken, nothing refused for `QUIET`: log
//!   (room) ─────────────> (full, count) ──────────────────────────────────────────> (room)
//!                            │     ^
//!                            └─────┘ refused: count; log once in `REPEAT`
//! ```
//!
//! Time is an argument.

use std::time::{Duration, Instant};

/// Number of lines of a kind that may come at once: as many as fit a terminal next to others.
pub const BURST: u32 = 10;

/// Interval of further lines of a kind. Six a minute can be read, and fill no disk.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which a limit that stays full is logged. A line a minute can be read, and fills no
/// disk.
const REPEAT: Duration = Duration::from_secs(60);

/// Time without refusals after which the limit counts as having room again. A limit that is full
/// and has room by turns many times a second would otherwise be logged as often.
const QUIET: Duration = Duration::from_secs(10);

/// The lines of one kind.
#[derive(Debug, Default)]
pub struct LineLimit {
    paid_until: Option<Instant>,
    left_out: u64,
}

impl LineLimit {
    /// A line is to be written. `Some` when it may be, with how many before it were left out.
    pub fn handle_line(&mut self, now: Instant) -> Option<u64> {
        let left_out = self.take(now).then(|| std::mem::take(&mut self.left_out));
        if left_out.is_none() {
            self.left_out = self.left_out.saturating_add(1);
        }
        left_out
    }

    /// Returns the time at which to log the number of suppressed lines, unless a line has done so
    /// by then. `None` if none were suppressed. A token is available an interval earlier, for a
    /// line with more than the count.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let paid_until = self.paid_until.filter(|_| self.left_out > 0)?;
        Some(paid_until.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(paid_until) + INTERVAL)
    }

    /// Looks whether the count is due. `Some` when it is to be written, with the count.
    pub fn handle_due(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.due().is_some_and(|due| due <= now);
        (is_due && self.take(now)).then(|| std::mem::take(&mut self.left_out))
    }

    /// Returns the number of lines suppressed since the last one, to be logged at once because no
    /// further line can come. `None` if there were none.
    pub fn close(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.left_out)).filter(|left_out| *left_out > 0)
    }

    fn take(&mut self, now: Instant) -> bool {
        let paid_until = self.paid_until.map_or(now, |it| it.max(now));
        let has_token = paid_until.duration_since(now) <= INTERVAL * (BURST - 1);
        if has_token {
            self.paid_until = Some(paid_until + INTERVAL);
        }
        has_token
    }
}

/// The saturation of a limit in the log.
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

    /// Returns true if the last log line says that the limit is full.
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
    fn ten_lines_come_at_once_and_then_one_in_ten_seconds() {
        let (start, mut limit) = (Instant::now(), LineLimit::default());
        assert!((0..10).all(|_| limit.handle_line(start) == Some(0)));
        assert!((0..5).all(|_| limit.handle_line(start).is_none()));
        assert_eq!(limit.handle_line(start + INTERVAL), Some(5));
        assert_eq!((limit.handle_line(start + INTERVAL), limit.due().is_some()), (None, true));
        assert_eq!(limit.handle_line(start + 2 * INTERVAL), Some(1));
        assert_eq!(limit.due(), None);
    }

    #[test]
    fn the_count_of_a_flood_that_has_ended_is_said() {
        let (start, mut limit) = (Instant::now(), LineLimit::default());
        for _ in 0..1000 {
            let _ = limit.handle_line(start);
        }
        let due = limit.due().unwrap();
        assert_eq!(due, start + 2 * INTERVAL, "a line that says more comes first");
        assert_eq!(limit.handle_due(due - Duration::from_nanos(1)), None);
        assert_eq!((limit.handle_due(due), limit.due()), (Some(990), None));
        let _ = (0..12).map(|_| limit.handle_line(due)).collect::<Vec<_>>();
        assert_eq!((limit.close(), limit.close()), (Some(11), None));
    }

    proptest! {
        #[test]
        fn lines_are_few_and_every_one_is_counted(
            steps in prop::collection::vec((0u64..3000, 0u8..4), 1..3000),
        ) {
            let (start, mut limit) = (Instant::now(), LineLimit::default());
            let (mut now, mut written, mut wanted, mut counted) = (start, Vec::new(), 0, 0);
            for (millis, what) in steps {
                // Most of them at once.
                now += Duration::from_millis(if what == 0 { millis } else { 0 });
                let (line, is_line) = match what {
                    3 => (limit.handle_due(now), 0),
                    _ => (limit.handle_line(now), 1),
                };
                wanted += is_line;
                if let Some(left_out) = line {
                    counted += left_out + is_line;
                    written.push(now);
                }
                prop_assert_eq!(limit.due().is_some(), counted < wanted);
            }
            prop_assert_eq!(counted + limit.close().unwrap_or(0), wanted);
            for (index, from) in written.iter().enumerate() {
                for (count, until) in (1u128..).zip(&written[index..]) {
                    let span = (*until - *from).as_nanos() / INTERVAL.as_nanos();
                    prop_assert!(count <= u128::from(BURST) + span);
                }
            }
        }
    }

    #[test]
    fn a_limit_is_logged_when_reached_and_when_relieved() {
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
