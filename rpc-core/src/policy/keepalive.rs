//! Keepalive: whether the peer is alive, from the traffic between two ticks.
//!
//! ```text
//!             nothing came in: ping              nothing for `timeout`
//!   (alive) ─────────────────────────> (pinged) ─────────────────────────> dead
//!      ^                                  │
//!      └───── something, of any kind ─────┘
//! ```
//! A driver looks at the connection's counters once an interval, so that nothing is spent on a
//! frame. Only what comes in counts as life: a socket accepts bytes for a dead peer too, for as
//! long as its buffers last. A side that has sent nothing since the last look pings as well, so
//! that a peer whose own ping is stuck behind what it sends hears something. Time is an argument.

use std::time::{Duration, Instant};

use crate::settings::{InvalidSetting, MAX_DURATION, MIN_TIMEOUT, define_settings};
use crate::wire::ProtocolError;

define_settings! {
    /// Detection of a peer that is gone.
    ///
    /// A peer that is gone is found at most twice `interval` and `timeout` after the last thing
    /// that it sent.
    ///
    /// [`check`](Self::check) says whether the times are in range. The setters that take a
    /// `Keepalive` check it, and panic.
    Keepalive, KeepaliveOverlay, "keepalive", [const], derive(Copy, PartialEq, Eq) {
        /// Time in which nothing may come in before a ping asks for something; "off" leaves the
        /// detection to the operating system, which may take hours. At grpc:// the default is 5m,
        /// and a channel pings during calls alone.
        ///
        /// It is also how often this side lets itself be heard. 10 s by default: the shortest that
        /// gRPC's guide recommends, a thirtieth of the five minutes or so after which common
        /// middleboxes forget a connection, and for 10,000 idle connections 1,000 frames a second.
        /// From 100 ms to 365 days: with less, the peer ends the connection after a while, because
        /// of the flood of pings.
        interval, with_interval: Option<Duration> as OrOff = Some(Duration::from_secs(10)), Live,
            MIN_INTERVAL..=MAX_DURATION,
            "the peer treats more pings as a flood and closes the connection";
        /// Time in which nothing may come in after a ping before the connection ends.
        ///
        /// 20 s by default, as gRPC has it: a ping may stand behind what the sockets on the way
        /// have buffered, and 4 MiB of that take 17 s on a link of 2 Mbit/s. From 1 ms to 365 days.
        timeout, with_timeout: Duration as Plain = Duration::from_secs(20), Live,
            MIN_TIMEOUT..=MAX_DURATION, "no peer answers that fast";
    } private {
        /// Permits an interval that the peer takes for a flood after a while.
        is_for_tests: bool = false;
    } gone {
        enabled: "`interval = \"off\"` switches it off";
    }
}

impl Keepalive {
    /// A peer that is silent for `interval` is sent a ping, and has `timeout` to be heard.
    #[must_use]
    pub const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval: Some(interval), timeout, is_for_tests: false }
    }

    /// No detection.
    #[must_use]
    pub const fn off() -> Self {
        Self::DEFAULTS.with_interval(None)
    }

    /// Makes a keepalive like [`new`](Self::new), with an `interval` down to 1 ms, for tests that
    /// count pings. A peer ends the connection after the first hundred such pings.
    #[doc(hidden)]
    #[must_use]
    pub const fn for_tests(interval: Duration, timeout: Duration) -> Self {
        Self { interval: Some(interval), timeout, is_for_tests: true }
    }

    /// Checks that both times are in their ranges.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        match self.interval {
            Some(interval) if self.is_for_tests && interval >= MIN_TIMEOUT => {
                self.with_interval(Some(interval.max(MIN_INTERVAL))).check_each()
            }
            _ => self.check_each(),
        }
    }
}

/// The counts of a connection so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Sent amount, in units of any size.
    pub sent_count: u64,
    /// Received bytes.
    pub received_bytes: u64,
}

/// The driver's step after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// Nothing.
    Wait,
    /// To send a ping.
    Ping,
    /// To end the connection, because the peer is silent, unless something came in that this side
    /// has not read: see [`KeepaliveTimer::handle_unread`].
    Close,
}

/// The keepalive of one connection.
#[derive(Debug)]
pub struct KeepaliveTimer {
    interval: Duration,
    timeout: Duration,
    seen: Traffic,
    /// Time of the last ping that nothing followed.
    ping_sent_at: Option<Instant>,
    due: Instant,
    ping_count: u64,
}

impl KeepaliveTimer {
    /// Starts with a connection. `None` where the rules are off.
    #[must_use]
    pub fn new(rules: Keepalive, now: Instant) -> Option<Self> {
        // `check` refuses other values; a program that uses this machine alone need not call it.
        let in_range = |time: Duration| time.clamp(MIN_TIMEOUT, MAX_DURATION);
        let (interval, timeout) = (in_range(rules.interval?), in_range(rules.timeout));
        let due = now + interval;
        let seen = Traffic::default();
        Some(Self { interval, timeout, seen, ping_sent_at: None, due, ping_count: 0 })
    }

    /// Returns the time that the peer has to answer.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the number of pings sent, which is the number of the last one.
    #[must_use]
    pub fn ping_count(&self) -> u64 {
        self.ping_count
    }

    /// Returns the time of the next tick.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Handles a tick, if one is due.
    pub fn handle_tick(&mut self, now: Instant, traffic: Traffic) -> Action {
        let late = match now.checked_duration_since(self.due) {
            Some(late) => late,
            None => return Action::Wait,
        };
        let is_heard = traffic.received_bytes != self.seen.received_bytes;
        let is_quiet = traffic.sent_count == self.seen.sent_count;
        self.seen = traffic;
        if is_heard {
            self.ping_sent_at = None;
            self.due = now + self.interval;
            return if is_quiet { self.ping() } else { Action::Wait };
        }
        match self.ping_sent_at {
            // A process that was stopped finds what came meanwhile unread: it has to look again.
            Some(_) if late >= self.timeout => self.ask(now),
            Some(ping_sent_at) if now >= ping_sent_at + self.timeout => Action::Close,
            Some(ping_sent_at) => {
                self.due = (ping_sent_at + self.timeout).min(now + self.interval);
                Action::Wait
            }
            None => self.ask(now),
        }
    }

    /// Records that something has come in that this side has not read. The peer is not silent: this
    /// side has not looked, because user code blocks the task that reads.
    pub fn handle_unread(&mut self, now: Instant) {
        self.ping_sent_at = None;
        self.due = now + self.interval;
    }

    fn ask(&mut self, now: Instant) -> Action {
        self.ping_sent_at = Some(now);
        self.due = now + self.interval.min(self.timeout);
        self.ping()
    }

    fn ping(&mut self) -> Action {
        self.ping_count += 1;
        Action::Ping
    }
}

/// Number of pings that a peer may send at once.
const BURST: u32 = 100;

/// Number of pings a second that a peer may send on average. gRPC's servers permit one in five
/// minutes by default. Ten a second still cost less than ten calls.
const PER_SECOND: u32 = 10;

/// The shortest interval at which a side may ping for ever: a shorter one uses up [`BURST`].
const MIN_INTERVAL: Duration = Duration::from_millis(1000 / PER_SECOND as u64);

/// A token bucket for the peer's pings, which also tells which to answer.
#[derive(Debug)]
pub struct PingLimiter {
    allowance: f64,
    at: Instant,
    /// Amount that had been sent when the last pong was discarded.
    answered_at: Option<u64>,
}

impl PingLimiter {
    /// No ping yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { allowance: f64::from(BURST), at: now, answered_at: None }
    }

    /// Takes a ping; true when it is to be answered. While a pong waits to be sent another would
    /// only add to what waits, and says nothing that the first does not.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if there are too many.
    pub fn handle_ping(&mut self, now: Instant, traffic: Traffic) -> Result<bool, ProtocolError> {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        let earned = passed.as_secs_f64() * f64::from(PER_SECOND);
        self.allowance = (self.allowance + earned).min(f64::from(BURST)) - 1.0;
        if self.allowance < 0.0 {
            return Err(ProtocolError::TooManyPings { burst: BURST, per_second: PER_SECOND });
        }
        let is_waiting = self.answered_at == Some(traffic.sent_count);
        if !is_waiting {
            self.answered_at = Some(traffic.sent_count);
        }
        Ok(!is_waiting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RULES: Keepalive = Keepalive::new(Duration::from_secs(10), SECOND);

    fn traffic(sent_count: u64, received_bytes: u64) -> Traffic {
        Traffic { sent_count, received_bytes }
    }

    #[test]
    fn times_out_of_range_are_named_with_their_range() {
        let (ms, year) = (Duration::from_millis(1), 365 * 24 * 3600 * SECOND);
        let flood = "from 100 ms to 365 days, since the peer treats more pings as a flood";
        let timeout = "from 1 ms to 365 days, since no peer";
        let table = [
            (RULES.with_interval(Some(99 * ms)), format!("interval is 99ms: {flood}")),
            (RULES.with_interval(Some(year + ms)), format!("interval is 31536000.001s: {flood}")),
            (RULES.with_timeout(Duration::ZERO), format!("timeout is 0ns: {timeout}")),
            (RULES.with_timeout(2 * year), format!("timeout is 63072000s: {timeout}")),
        ];
        for (rules, message) in table {
            let error = rules.check().expect_err("a time is out of range").to_string();
            assert!(error.starts_with(&format!("keepalive.{message}")), "{error}");
        }
        let ends = [Keepalive::new(100 * ms, ms), Keepalive::new(year, year)];
        let others = [Keepalive::default(), Keepalive::off(), Keepalive::for_tests(ms, ms)];
        for rules in others.into_iter().chain(ends) {
            assert_eq!(rules.check(), Ok(()));
        }
    }

    #[test]
    fn a_silent_peer_is_dead_after_interval_and_timeout() {
        let start = Instant::now();
        let mut timer = KeepaliveTimer::new(RULES, start).unwrap();
        assert_eq!(timer.handle_tick(start + SECOND, traffic(0, 0)), Action::Wait);
        assert_eq!(timer.due(), start + 10 * SECOND);
        assert_eq!(timer.handle_tick(timer.due(), traffic(0, 0)), Action::Ping);
        assert_eq!(timer.due(), start + 11 * SECOND);
        assert_eq!(timer.handle_tick(timer.due(), traffic(1, 0)), Action::Close);
    }

    #[test]
    fn sending_is_no_sign_of_life_and_a_part_of_a_frame_is() {
        let start = Instant::now();
        let mut timer = KeepaliveTimer::new(RULES, start).unwrap();
        assert_eq!(timer.handle_tick(timer.due(), traffic(50, 0)), Action::Ping);
        assert_eq!(timer.handle_tick(timer.due(), traffic(90, 7)), Action::Wait);
        assert_eq!(timer.handle_tick(timer.due(), traffic(99, 7)), Action::Ping);
        assert_eq!(timer.handle_tick(timer.due(), traffic(999, 7)), Action::Close);
    }

    #[test]
    fn a_side_that_only_receives_pings() {
        let mut timer = KeepaliveTimer::new(RULES, Instant::now()).unwrap();
        assert_eq!(timer.handle_tick(timer.due(), traffic(0, 100)), Action::Ping);
        assert_eq!(timer.handle_tick(timer.due(), traffic(1, 200)), Action::Wait);
        assert_eq!(timer.handle_tick(timer.due(), traffic(1, 300)), Action::Ping);
    }

    #[test]
    fn a_process_that_was_stopped_asks_again() {
        let mut timer = KeepaliveTimer::new(RULES, Instant::now()).unwrap();
        assert_eq!(timer.handle_tick(timer.due(), traffic(0, 0)), Action::Ping);
        let woken = timer.due() + 60 * SECOND;
        assert_eq!(timer.handle_tick(woken, traffic(1, 0)), Action::Ping);
        assert_eq!(timer.handle_tick(timer.due(), traffic(2, 0)), Action::Close);
    }

    #[test]
    fn what_is_not_read_is_a_sign_of_life() {
        let mut timer = KeepaliveTimer::new(RULES, Instant::now()).unwrap();
        for pings in 0..100 {
            assert_eq!(timer.handle_tick(timer.due(), traffic(2 * pings, 0)), Action::Ping);
            assert_eq!(timer.handle_tick(timer.due(), traffic(2 * pings + 1, 0)), Action::Close);
            // The task that reads is blocked, and the answer lies in the kernel.
            timer.handle_unread(timer.due());
        }
        // It has read what there was, and the peer says nothing more.
        assert_eq!(timer.handle_tick(timer.due(), traffic(200, 7)), Action::Wait);
        assert_eq!(timer.handle_tick(timer.due(), traffic(201, 7)), Action::Ping);
        assert_eq!(timer.handle_tick(timer.due(), traffic(202, 7)), Action::Close);
    }

    #[test]
    fn absurd_rules_neither_panic_nor_spin() {
        let now = Instant::now();
        let longest = Keepalive::new(Duration::MAX, Duration::MAX);
        let mut timer = KeepaliveTimer::new(longest, now).unwrap();
        assert_eq!(timer.handle_tick(timer.due(), traffic(0, 0)), Action::Ping);
        let none = Keepalive::new(Duration::ZERO, Duration::ZERO);
        assert!(KeepaliveTimer::new(none, now).unwrap().due() > now);
    }

    #[test]
    fn a_flood_of_pings_is_a_violation_and_costs_one_pong() {
        let now = Instant::now();
        let mut ping_limiter = PingLimiter::new(now);
        let answered: Vec<_> =
            (0..BURST).map(|_| ping_limiter.handle_ping(now, traffic(3, 0))).collect();
        assert_eq!(answered.iter().filter(|answer| **answer == Ok(true)).count(), 1);
        assert!(answered.iter().all(Result::is_ok));
        assert!(ping_limiter.handle_ping(now, traffic(3, 0)).is_err());
    }

    #[test]
    fn pings_at_the_allowed_rate_are_answered_for_ever() {
        let mut now = Instant::now();
        let mut ping_limiter = PingLimiter::new(now);
        for number in 0..10_000 {
            now += SECOND / PER_SECOND;
            assert_eq!(ping_limiter.handle_ping(now, traffic(number, 0)), Ok(true));
        }
    }

    #[test]
    fn a_peer_has_all_of_its_timeout_however_often_it_is_looked_at() {
        let start = Instant::now();
        let mut timer = KeepaliveTimer::new(Keepalive::new(2 * SECOND, 7 * SECOND), start).unwrap();
        assert_eq!(timer.timeout(), 7 * SECOND);
        assert_eq!((timer.due(), timer.ping_count()), (start + 2 * SECOND, 0));
        assert_eq!(timer.handle_tick(timer.due(), traffic(0, 0)), Action::Ping);
        for seconds in [4, 6, 8] {
            assert_eq!(timer.due(), start + seconds * SECOND);
            assert_eq!(timer.handle_tick(timer.due(), traffic(1, 0)), Action::Wait);
        }
        assert_eq!((timer.due(), timer.ping_count()), (start + 9 * SECOND, 1));
        assert_eq!(timer.handle_tick(timer.due(), traffic(1, 0)), Action::Close);
    }

    #[test]
    fn an_interval_begins_with_each_sign_of_life() {
        let start = Instant::now();
        let mut timer = KeepaliveTimer::new(RULES, start).unwrap();
        assert_eq!(timer.handle_tick(start + 12 * SECOND, traffic(1, 5)), Action::Wait);
        assert_eq!(timer.due(), start + 22 * SECOND);
        assert_eq!(timer.handle_tick(timer.due(), traffic(1, 9)), Action::Ping);
        assert_eq!((timer.due(), timer.ping_count()), (start + 32 * SECOND, 1));
        timer.handle_unread(start + 30 * SECOND);
        assert_eq!(timer.due(), start + 40 * SECOND);
        assert_eq!(timer.handle_tick(timer.due(), traffic(2, 9)), Action::Ping);
        assert_eq!(timer.ping_count(), 2);
    }

    /// Late by its whole timeout this side has to look again; by less it was the peer's silence.
    #[test]
    fn a_look_that_is_a_little_late_is_the_last() {
        for (late_ms, action) in [(999, Action::Close), (1000, Action::Ping)] {
            let mut timer = KeepaliveTimer::new(RULES, Instant::now()).unwrap();
            assert_eq!(timer.handle_tick(timer.due(), traffic(0, 0)), Action::Ping);
            let now = timer.due() + Duration::from_millis(late_ms);
            assert_eq!(timer.handle_tick(now, traffic(1, 0)), action, "{late_ms} ms");
        }
    }

    #[test]
    fn after_a_burst_pings_are_allowed_by_the_second() {
        let start = Instant::now();
        let mut limiter = PingLimiter::new(start);
        for _ in 0..BURST {
            assert!(limiter.handle_ping(start, traffic(0, 0)).is_ok());
        }
        let later = start + SECOND;
        let taken = (0..1000).take_while(|_| limiter.handle_ping(later, traffic(0, 0)).is_ok());
        assert_eq!(taken.count(), 10);
    }

    #[test]
    fn a_pong_is_given_again_once_something_was_sent() {
        let start = Instant::now();
        let mut limiter = PingLimiter::new(start);
        let answers = [5, 5, 6, 6, 7].map(|sent| limiter.handle_ping(start, traffic(sent, 0)));
        assert_eq!(answers, [Ok(true), Ok(false), Ok(true), Ok(false), Ok(true)]);
    }

    proptest! {
        /// Whatever the traffic was before, silence ends within the documented bound, and a peer
        /// that is heard between any two looks never dies.
        #[test]
        fn silence_is_found_in_time_and_life_is_never_cut(
            heard in prop::collection::vec(any::<bool>(), 0..50),
            interval_ms in 1u64..5000,
            timeout_ms in 1u64..5000,
        ) {
            let start = Instant::now();
            let (interval, timeout) =
                (Duration::from_millis(interval_ms), Duration::from_millis(timeout_ms));
            let mut timer = KeepaliveTimer::new(Keepalive::new(interval, timeout), start).unwrap();
            let mut seen = traffic(0, 0);
            let mut last_heard = start;
            for is_heard in heard {
                let now = timer.due();
                if is_heard {
                    seen.received_bytes += 1;
                    last_heard = now;
                }
                let look = timer.handle_tick(now, seen);
                prop_assert!(!is_heard || look != Action::Close);
                if look == Action::Close {
                    prop_assert!(now - last_heard <= 2 * interval + timeout);
                    return Ok(());
                }
            }
            loop {
                let now = timer.due();
                if timer.handle_tick(now, seen) == Action::Close {
                    prop_assert!(now - last_heard <= 2 * interval + timeout);
                    break;
                }
                prop_assert!(now - last_heard <= 2 * interval + timeout);
            }
        }
    }
}
