//! How much of large frames may be under way that the peer has not read.
//!
//! What the peer's kernel has taken and its process has not read, a small frame waits behind; that
//! grows to the peer's receive buffer, 32 MiB, whenever its process is kept from a core. A shorter
//! buffer would cap long paths. So while small frames share the way, the writing is *paced*: chunks
//! ask for acks, which say how much the peer has read, and no more than a window is unread.
//!
//! The window is twice what the path holds: the bytes that were read in a round trip, in the part
//! of it that the trip takes when nothing is queued. That doubles the window with every trip of a
//! path that is not full yet, and leaves a queue of one trip on one that is. How long a trip takes
//! at least is measured by short chunks that are alone on their way, now and then, since paths
//! change.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

use rpc_core::wire::ProtocolError;

/// The longest chunk while writing is paced.
const PACED_LEN: usize = 48 << 10;

/// The smallest window: two chunks, one that is read while the other is on its way. Measured over
/// loopback: with twice that, a small call's 99th percentile was four times as long; with two
/// thirds, a third less came through.
const WINDOW_MIN: u64 = 2 * PACED_LEN as u64;

/// The largest window: no more than this waits to be written at all.
pub(crate) const WINDOW_MAX: u64 = 128 << 20;

/// The bytes of chunks behind the last small frame until chunks ask for nothing any more: 0.2 s of
/// a fast path. A connection that calls less often than that now and then waits for a full buffer
/// once.
const PACED_BYTES: u64 = 256 << 20;

/// For how long the shortest round trip is believed. On a path of 100 ms, measuring it anew takes
/// one part of a hundred of that.
const TRIP_LIFETIME: Duration = Duration::from_secs(30);

/// How many round trips are measured, of which the shortest counts: a thread that has to wait for a
/// core makes any one of them long.
const TRIP_COUNT: u32 = 4;

/// The length of the chunks that are sent for that: writing and reading them takes no time.
const ALONE_LEN: usize = 4 << 10;

/// A chunk that an ack is awaited for, to measure a round trip by.
#[derive(Debug)]
struct Probe {
    /// Where the chunk ends.
    end: u64,
    sent_at: Instant,
    /// What had been read when it was sent.
    read_before: u64,
    is_alone: bool,
    /// Whether the window was full meanwhile, so that the trip says what the path holds.
    is_full: bool,
}

/// What is known of chunks on their way to the peer. Bytes are counted from the connection's start.
#[derive(Debug)]
pub(crate) struct Unread {
    sent: u64,
    read: u64,
    /// Where the last chunk ends that asked for an ack.
    wanted: u64,
    /// The bytes of chunks that will still be paced.
    paced_left: u64,
    window: u64,
    /// The shortest round trip.
    trip: Option<Duration>,
    /// When it was last measured with nothing else under way.
    measured_at: Option<Instant>,
    /// How often it is to be measured so.
    trips_left: u32,
    probe: Option<Probe>,
}

impl Default for Unread {
    fn default() -> Self {
        Self {
            sent: 0,
            read: 0,
            wanted: 0,
            paced_left: 0,
            window: WINDOW_MIN,
            trip: None,
            measured_at: None,
            trips_left: TRIP_COUNT,
            probe: None,
        }
    }
}

impl Unread {
    /// Records a small frame that shares the way with large ones.
    pub(crate) fn handle_small(&mut self) {
        self.paced_left = PACED_BYTES;
    }

    /// Whether chunks ask for acks.
    pub(crate) fn is_paced(&self) -> bool {
        self.paced_left > 0
    }

    /// Whether another chunk may be sent.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        if !self.is_paced() || self.read >= self.wanted {
            return true;
        }
        !self.is_measuring(now) && self.has_room()
    }

    /// How long the next chunk may be while writing is paced.
    pub(crate) fn chunk_len_max(&self, now: Instant) -> usize {
        let is_to_be_alone = self.read == self.sent && self.is_measuring(now);
        if is_to_be_alone { ALONE_LEN } else { PACED_LEN }
    }

    /// Records that a chunk of `len` bytes is sent. It asks for an ack if writing is paced.
    pub(crate) fn handle_sent(&mut self, len: usize, now: Instant) {
        let is_alone = self.read == self.sent;
        // What did not ask for acks would be counted as if this trip had brought it there.
        let is_counted = is_alone || self.wanted == self.sent;
        self.sent += len as u64;
        if !self.is_paced() {
            return;
        }
        if is_alone && self.trips_left == 0 && self.is_measuring(now) {
            (self.trip, self.trips_left) = (None, TRIP_COUNT);
        }
        self.paced_left = self.paced_left.saturating_sub(len as u64);
        self.wanted = self.sent;
        let is_full = !self.has_room();
        match &mut self.probe {
            Some(probe) => probe.is_full |= is_full,
            None if is_counted => {
                let (end, read_before) = (self.sent, self.read);
                let probe = Probe { end, sent_at: now, read_before, is_alone, is_full };
                self.probe = Some(probe);
            }
            None => {}
        }
    }

    /// Records an ack.
    ///
    /// # Errors
    ///
    /// When it says nothing new, or more than there was to read.
    pub(crate) fn handle_ack(&mut self, read: u64, now: Instant) -> Result<(), ProtocolError> {
        if read <= self.read || read > self.sent {
            return Err(ProtocolError::Invalid { what: "ack", value: read });
        }
        self.read = read;
        if let Some(probe) = self.probe.take_if(|probe| probe.end <= read) {
            self.measure(&probe, now);
        }
        Ok(())
    }

    /// Whether the window has room for another chunk.
    fn has_room(&self) -> bool {
        self.sent - self.read + PACED_LEN as u64 <= self.window
    }

    /// Whether the shortest round trip is to be found out before more is sent.
    fn is_measuring(&self, now: Instant) -> bool {
        let age = self.measured_at.map(|at| now.saturating_duration_since(at));
        self.trips_left > 0 || age.is_some_and(|age| age >= TRIP_LIFETIME)
    }

    fn measure(&mut self, probe: &Probe, now: Instant) {
        let time = now.saturating_duration_since(probe.sent_at).max(Duration::from_nanos(1));
        let trip = self.trip.map_or(time, |trip| trip.min(time));
        self.trip = Some(trip);
        if probe.is_alone {
            self.trips_left = self.trips_left.saturating_sub(1);
            self.measured_at = Some(now);
        }
        let holds = u128::from(self.read - probe.read_before) * trip.as_nanos() / time.as_nanos();
        // The window's maximum is the smaller by far.
        let wanted = u64::try_from(2 * holds).unwrap_or(u64::MAX);
        // One slow trip is not a slow path, and one with little to send says nothing of it.
        let shrunk = if probe.is_full { self.window - self.window / 8 } else { self.window };
        self.window = wanted.max(shrunk).clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A path to a peer that reads whatever arrives, and says so at once.
    struct Path {
        bytes_per_us: u64,
        one_way: Duration,
        now: Instant,
        /// When all that was sent will have left.
        idle_at: Instant,
        sent: u64,
        acks: VecDeque<(Instant, u64)>,
        unread: Unread,
    }

    fn micros(time: Duration) -> u64 {
        u64::try_from(time.as_micros()).unwrap()
    }

    impl Path {
        fn new(bytes_per_us: u64, one_way: Duration) -> Self {
            let now = Instant::now();
            let (acks, unread) = (VecDeque::new(), Unread::default());
            Self { bytes_per_us, one_way, now, idle_at: now, sent: 0, acks, unread }
        }

        /// Sends as much as may be for a while, small frames beside it; the bytes a microsecond
        /// that were read, and the most that waited for the path at a time.
        fn run(&mut self, time: Duration) -> (u64, u64) {
            let (end, read_before, mut queued_max) = (self.now + time, self.unread.read, 0);
            while self.now < end {
                self.unread.handle_small();
                while self.unread.may_send(self.now) {
                    self.send();
                    let waiting = self.idle_at.saturating_duration_since(self.now);
                    queued_max = queued_max.max(micros(waiting) * self.bytes_per_us);
                }
                let (at, read) = self.acks.pop_front().expect("an ack is on its way");
                self.now = at;
                self.unread.handle_ack(read, at).unwrap();
            }
            ((self.unread.read - read_before) / micros(time), queued_max)
        }

        fn send(&mut self) {
            let len = self.unread.chunk_len_max(self.now);
            self.unread.handle_sent(len, self.now);
            self.sent += len as u64;
            let time = Duration::from_micros(len as u64 / self.bytes_per_us);
            self.idle_at = self.idle_at.max(self.now) + time;
            self.acks.push_back((self.idle_at + 2 * self.one_way, self.sent));
        }
    }

    #[test]
    fn a_long_path_is_filled() {
        let mut path = Path::new(1000, Duration::from_millis(25));
        path.run(Duration::from_secs(2));
        let (rate, _) = path.run(Duration::from_secs(60));
        assert!(rate > 950, "{rate} bytes a microsecond of 1000");
    }

    #[test]
    fn on_a_short_path_little_waits() {
        let mut path = Path::new(1000, Duration::from_micros(10));
        let (rate, queued_max) = path.run(Duration::from_secs(30));
        assert!(rate > 850, "{rate} bytes a microsecond of 1000");
        assert!(queued_max <= 3 * PACED_LEN as u64, "{queued_max} bytes");
    }

    #[test]
    fn a_path_that_becomes_longer_is_filled_again() {
        let mut path = Path::new(1000, Duration::from_micros(500));
        path.run(Duration::from_secs(1));
        path.one_way = Duration::from_millis(25);
        path.run(TRIP_LIFETIME + Duration::from_secs(2));
        let (rate, _) = path.run(Duration::from_secs(5));
        assert!(rate > 900, "{rate} bytes a microsecond of 1000");
    }

    #[test]
    fn nothing_is_asked_or_held_back_without_small_frames() {
        let (mut unread, now) = (Unread::default(), Instant::now());
        unread.handle_sent(1 << 30, now);
        assert!(unread.may_send(now) && !unread.is_paced());
        unread.handle_small();
        assert!(unread.may_send(now), "one chunk may always be sent, to get an ack");
        unread.handle_sent(100, now);
        assert!(!unread.may_send(now));
        unread.handle_ack((1 << 30) + 100, now).unwrap();
        assert_eq!(unread.window, WINDOW_MIN, "that says nothing of the path");
        while unread.is_paced() {
            assert!(unread.may_send(now));
            unread.handle_sent(PACED_LEN, now);
            let _ = unread.handle_ack(unread.sent, now);
        }
        assert!(unread.may_send(now));
        assert!(unread.sent >= (1 << 30) + PACED_BYTES);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Small,
        Send(usize),
        /// An ack for so many of 100 parts of what is unread.
        Ack(u64),
        Wait(Duration),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Small),
            (1..=PACED_LEN).prop_map(Step::Send),
            (1..=100_u64).prop_map(Step::Ack),
            (0..20_000_u64).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        ]
    }

    proptest! {
        #[test]
        fn a_sender_that_may_not_send_is_owed_an_ack(
            steps in prop::collection::vec(step(), 0..400),
        ) {
            let (mut unread, mut now) = (Unread::default(), Instant::now());
            for step in steps {
                match step {
                    Step::Small => unread.handle_small(),
                    Step::Send(len) if unread.may_send(now) => unread.handle_sent(len, now),
                    Step::Send(_) => {}
                    Step::Ack(parts) => {
                        let read = unread.read + (unread.sent - unread.read) * parts / 100;
                        let is_news = read > unread.read;
                        prop_assert_eq!(unread.handle_ack(read, now).is_ok(), is_news);
                    }
                    Step::Wait(time) => now += time,
                }
                prop_assert!(unread.handle_ack(unread.read, now).is_err());
                prop_assert!(unread.handle_ack(unread.sent + 1, now).is_err());
                prop_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&unread.window));
                prop_assert!(unread.may_send(now) || unread.wanted > unread.read);
            }
            if !unread.may_send(now) {
                unread.handle_ack(unread.wanted, now).unwrap();
                prop_assert!(unread.may_send(now));
            }
        }
    }
}
