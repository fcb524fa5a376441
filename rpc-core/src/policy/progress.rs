//! Progress: whether a peer still reads what waits for it, and goes on with a frame that it began.
//!
//! A pong says that a peer's process runs. It does not say that the peer takes its answers: one
//! that only writes makes this side keep them for as long as it answers pings. So each direction
//! of a connection is judged by the bytes that move in it while something waits:
//!
//! ```text
//!             nothing waits                  nothing moved for `timeout`
//!   (free) <────────────────> (waiting) ──────────────────────────────> stalled
//!                               │    ^
//!                               └────┘ something moved
//! ```
//! A driver looks at counters of the transport a few times in a timeout, so that nothing is spent
//! on a frame. Time is an argument.

use std::time::{Duration, Instant};

/// Default of the time for which a peer may take nothing while something waits for it.
///
/// A peer that reads its socket takes something all the time, whatever its application does. What
/// hides that is the granularity with which a kernel takes more: Linux reports a socket as
/// writable when a third of its send buffer is free, 1.3 MiB of the usual 4 MiB. A minute lets a
/// link of 200 kbit/s pass even then. It is beyond keepalive's default bound of 40 s, which finds
/// a peer that has stopped altogether.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest timeout: less would be nothing but looks.
const SHORTEST: Duration = Duration::from_millis(4);

/// The longest: a year keeps every sum of instants in range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// One direction of a connection, as its transport counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// True if something waits to move: frames to be sent, or the rest of a frame that the peer has
    /// begun.
    pub is_waiting: bool,
    /// The bytes that have moved so far. Any number that changes when and only when something
    /// moves does.
    pub moved_bytes: u64,
}

/// Both directions of a connection. By default nothing waits, and nothing is ever judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flows {
    /// From this side to the peer.
    pub sending: Flow,
    /// From the peer to this side: frames that do not arrive in one piece.
    pub receiving: Flow,
}

/// The direction in which a peer has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stalled {
    /// It takes nothing of what waits for it.
    Sending,
    /// It has begun a large frame, and sends nothing more of it.
    Receiving,
}

impl Stalled {
    /// Returns true if the peer took nothing of what waits for it.
    #[must_use]
    pub fn takes_nothing(self) -> bool {
        self == Self::Sending
    }
}

/// The looks at one connection.
///
/// A peer that takes, and sends, at least something within each `timeout` is never found stalled.
/// One that stops is found within one and a half timeouts of the last byte that moved, looks that
/// come late not counted.
#[derive(Debug)]
pub struct Progress {
    timeout: Duration,
    sending: Watched,
    receiving: Watched,
    due: Instant,
}

/// One direction, as it was seen last.
#[derive(Debug, Default)]
struct Watched {
    moved_bytes: u64,
    /// Since when something has waited and nothing has moved.
    since: Option<Instant>,
}

impl Watched {
    /// Looks; true when nothing has moved for `timeout`.
    fn look(&mut self, now: Instant, flow: Flow, timeout: Duration) -> bool {
        let has_moved = flow.moved_bytes != self.moved_bytes;
        self.moved_bytes = flow.moved_bytes;
        if !flow.is_waiting {
            self.since = None;
            return false;
        }
        match self.since {
            Some(since) if !has_moved => now >= since + timeout,
            // What moved did so before this look, so that counting from here is to the peer's
            // advantage.
            _ => {
                self.since = Some(now);
                false
            }
        }
    }

    /// Does not count a time in which this side did not run.
    fn forgive(&mut self, late: Duration) {
        self.since = self.since.map(|since| since + late);
    }
}

impl Progress {
    /// Begins to look at a connection.
    #[must_use]
    pub fn new(timeout: Duration, now: Instant) -> Self {
        let timeout = timeout.clamp(SHORTEST, LONGEST);
        let (sending, receiving) = (Watched::default(), Watched::default());
        Self { timeout, sending, receiving, due: now + timeout / 2 }
    }

    /// Returns the time for which nothing may move.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the time of the next check.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Looks, if it is time to; `Some` when the connection is to be ended.
    pub fn handle_tick(&mut self, now: Instant, flows: Flows) -> Option<Stalled> {
        let late = now.checked_duration_since(self.due)?;
        // A process that was stopped could not see what moved meanwhile, and may not have had the
        // time to move anything itself.
        if late >= self.timeout / 4 {
            self.sending.forgive(late);
            self.receiving.forgive(late);
        }
        let sending = self.sending.look(now, flows.sending, self.timeout);
        let receiving = self.receiving.look(now, flows.receiving, self.timeout);
        let expiry = self.sending.since.into_iter().chain(self.receiving.since).min();
        let due = now + self.timeout / 2;
        // While something waits: often enough to see it move, and at the very end of the timeout.
        self.due = expiry.map_or(due, |since| {
            (now + self.timeout / 4).min((since + self.timeout).max(now + SHORTEST / 4))
        });
        match (sending, receiving) {
            (true, _) => Some(Stalled::Sending),
            (_, true) => Some(Stalled::Receiving),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn flow(is_waiting: bool, moved_bytes: u64) -> Flow {
        Flow { is_waiting, moved_bytes }
    }

    /// Looks when it is due until `end`; when it found what. `flows` says what is at a second.
    fn run(start: Instant, end: u64, flows: impl Fn(u64) -> Flows) -> Option<(u64, Stalled)> {
        let mut progress = Progress::new(TIMEOUT, start);
        while progress.due() < start + u32::try_from(end).unwrap() * SECOND {
            let now = progress.due();
            let second = (now - start).as_secs();
            if let Some(stalled) = progress.handle_tick(now, flows(second)) {
                return Some((second, stalled));
            }
        }
        None
    }

    #[test]
    fn a_peer_that_takes_nothing_is_stalled_and_an_idle_one_is_not() {
        let start = Instant::now();
        let sending =
            |is_waiting| move |_| Flows { sending: flow(is_waiting, 5), ..Flows::default() };
        assert_eq!(run(start, 1000, sending(true)), Some((90, Stalled::Sending)));
        assert_eq!(run(start, 1000, sending(false)), None);
        let receiving = |_| Flows { receiving: flow(true, 7), ..Flows::default() };
        assert_eq!(run(start, 1000, receiving), Some((90, Stalled::Receiving)));
    }

    #[test]
    fn a_time_in_which_this_side_did_not_run_is_not_counted() {
        let start = Instant::now();
        let flows = Flows { sending: flow(true, 5), ..Flows::default() };
        let mut progress = Progress::new(TIMEOUT, start);
        assert_eq!(progress.handle_tick(progress.due(), flows), None);
        assert_eq!(progress.handle_tick(progress.due() + 1000 * SECOND, flows), None);
        // One that has taken nothing in its own time either is found later.
        let mut looks = 0;
        while progress.handle_tick(progress.due(), flows).is_none() {
            looks += 1;
        }
        assert!((1..5).contains(&looks), "{looks}");
    }

    #[test]
    fn no_timeout_is_too_long_or_too_short() {
        let start = Instant::now();
        for timeout in [Duration::ZERO, Duration::MAX] {
            let mut progress = Progress::new(timeout, start);
            let flows = Flows { sending: flow(true, 5), ..Flows::default() };
            assert_eq!(progress.handle_tick(progress.due(), flows), None);
            assert!(progress.due() > start);
        }
    }

    #[test]
    fn looks_are_often_while_something_waits_and_rare_otherwise() {
        let start = Instant::now();
        let mut progress = Progress::new(TIMEOUT, start);
        assert_eq!((progress.timeout(), progress.due()), (TIMEOUT, start + 30 * SECOND));
        assert_eq!(progress.handle_tick(progress.due(), Flows::default()), None);
        assert_eq!(progress.due(), start + 60 * SECOND);
        let flows = Flows { receiving: flow(true, 5), ..Flows::default() };
        for (now, due) in [(60, 75), (75, 90), (80, 90), (90, 105), (100, 105), (110, 120)] {
            let _ = progress.handle_tick(start + now * SECOND, flows);
            assert_eq!(progress.due(), start + due * SECOND, "at {now}");
        }
        assert_eq!(progress.handle_tick(progress.due(), flows), Some(Stalled::Receiving));
        // It was told so. If the connection is kept all the same, looks do not follow at once.
        assert_eq!(progress.due(), start + 120 * SECOND + Duration::from_millis(1));
    }

    #[test]
    fn a_look_counts_as_late_from_a_quarter_of_the_timeout_on() {
        for (late, is_stalled) in [(14, true), (15, false)] {
            let start = Instant::now();
            let flows = Flows { sending: flow(true, 5), ..Flows::default() };
            let mut progress = Progress::new(TIMEOUT, start);
            for second in [30, 50, 65] {
                assert_eq!(progress.handle_tick(start + second * SECOND, flows), None);
            }
            assert_eq!(progress.due(), start + 80 * SECOND);
            let look = progress.handle_tick(progress.due() + late * SECOND, flows);
            assert_eq!(look.is_some(), is_stalled, "{late} s late");
        }
    }

    #[test]
    fn timeouts_are_from_four_milliseconds_to_a_year() {
        let timeout = |timeout| Progress::new(timeout, Instant::now()).timeout();
        assert_eq!(timeout(Duration::ZERO), Duration::from_millis(4));
        assert_eq!(timeout(Duration::MAX), Duration::from_secs(31_536_000));
    }

    proptest! {
        /// Something moves at least once in every window of the timeout, for as long as something
        /// waits; what waits comes and goes.
        #[test]
        fn a_slow_peer_that_takes_something_is_never_cut(
            steps in prop::collection::vec((1u64..60, any::<bool>()), 1..200),
        ) {
            let start = Instant::now();
            let mut at = 0;
            let moves: Vec<_> = steps.iter().map(|(step, is_waiting)| {
                at += step;
                (at, *is_waiting)
            }).collect();
            let flows = |second| {
                let moved = moves.iter().take_while(|(at, _)| *at <= second).count();
                // What waits changes only together with what has moved.
                let is_waiting = moves.get(moved).is_none_or(|(_, is_waiting)| *is_waiting);
                let both = flow(is_waiting, moved as u64);
                Flows { sending: both, receiving: both }
            };
            prop_assert_eq!(run(start, at, flows), None);
        }

        /// It takes its answers for a while and stops at any moment while something waits.
        #[test]
        fn a_peer_that_stops_is_cut_within_one_and_a_half_timeouts(
            stops_at in 0u64..1000,
            step in 1u64..50,
            is_receiving in any::<bool>(),
        ) {
            let start = Instant::now();
            let flows = |second: u64| {
                let moved = flow(true, second.min(stops_at) / step);
                match is_receiving {
                    true => Flows { receiving: moved, ..Flows::default() },
                    false => Flows { sending: moved, ..Flows::default() },
                }
            };
            let (cut_at, stalled) = run(start, 3000, flows).expect("it is found");
            let expected = if is_receiving { Stalled::Receiving } else { Stalled::Sending };
            prop_assert_eq!(stalled, expected);
            let last_move = stops_at / step * step;
            let bound = TIMEOUT.as_secs() * 3 / 2;
            let range = last_move + 60..=last_move + bound;
            prop_assert!(range.contains(&cut_at), "{cut_at}, {last_move}");
        }
    }
}
