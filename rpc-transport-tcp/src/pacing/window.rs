//! The window of chunks that the peer has not read.
//!
//! A small frame waits behind what the peer's kernel has taken and its process has not read. That
//! grows to the peer's receive buffer, 32 MiB, whenever its process gets no core. A shorter buffer
//! would cap long paths. So while small frames share the way, writing is *paced*: chunks ask for
//! acks, which say how much the peer has read, and no more than the window is unacknowledged.
//!
//! The window is twice the bandwidth-delay product (BDP): the bytes that were acknowledged in a
//! round trip, scaled from its time down to the minimum RTT. That doubles the window with every
//! round trip of a path that is not full yet, and leaves a queue of one RTT on one that is. The
//! minimum RTT is measured by short chunks that are alone on their way, and measured anew now and
//! then, since paths change.
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

/// How long a measured minimum RTT is used. On a path of 100 ms, measuring it anew takes a
/// hundredth of that.
const RTT_LIFETIME: Duration = Duration::from_secs(30);

/// How many round trips are measured, of which the shortest counts: a thread that waits for a core
/// makes any one of them long.
const RTT_SAMPLE_COUNT: u32 = 4;

/// The length of the chunks that measure the RTT: writing and reading them takes no time.
const ALONE_LEN: usize = 4 << 10;

/// A chunk whose ack measures a round trip.
#[derive(Debug)]
struct RttProbe {
    /// Where the chunk ends.
    end: u64,
    sent_at: Instant,
    /// What had been acknowledged when it was sent.
    acked_before: u64,
    is_alone: bool,
    /// Whether the window was full meanwhile: only then does the sample bound the BDP.
    is_full: bool,
}

/// The window, and the chunks on their way to the peer. Bytes are counted from the connection's
/// start.
#[derive(Debug)]
pub(crate) struct SendWindow {
    sent: u64,
    acked: u64,
    /// Where the last chunk ends that asked for an ack.
    wanted: u64,
    /// The bytes of chunks that will still be paced.
    paced_left: u64,
    len: u64,
    /// The minimum RTT.
    rtt: Option<Duration>,
    /// When the RTT was last measured with nothing else under way.
    measured_at: Option<Instant>,
    /// How many samples of it are still to be taken.
    samples_left: u32,
    probe: Option<RttProbe>,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self {
            sent: 0,
            acked: 0,
            wanted: 0,
            paced_left: 0,
            len: WINDOW_MIN,
            rtt: None,
            measured_at: None,
            samples_left: RTT_SAMPLE_COUNT,
            probe: None,
        }
    }
}

impl SendWindow {
    /// Records a small frame that shares the way with large ones: the chunks after it are paced.
    pub(crate) fn handle_small(&mut self) {
        self.paced_left = PACED_BYTES;
    }

    /// Whether chunks ask for acks.
    pub(crate) fn is_paced(&self) -> bool {
        self.paced_left > 0
    }

    /// Whether another chunk may be sent.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        if !self.is_paced() || self.acked >= self.wanted {
            return true;
        }
        !self.is_measuring(now) && self.has_room()
    }

    /// How long the next chunk may be while writing is paced.
    pub(crate) fn chunk_len_max(&self, now: Instant) -> usize {
        let is_to_be_alone = self.acked == self.sent && self.is_measuring(now);
        if is_to_be_alone { ALONE_LEN } else { PACED_LEN }
    }

    /// Records that a chunk of `len` bytes is sent. It asks for an ack if writing is paced.
    pub(crate) fn handle_sent(&mut self, len: usize, now: Instant) {
        let is_alone = self.acked == self.sent;
        // Chunks that asked for no ack would be counted as if they had arrived in this round trip.
        let is_counted = is_alone || self.wanted == self.sent;
        self.sent += len as u64;
        if !self.is_paced() {
            return;
        }
        if is_alone && self.samples_left == 0 && self.is_measuring(now) {
            (self.rtt, self.samples_left) = (None, RTT_SAMPLE_COUNT);
        }
        self.paced_left = self.paced_left.saturating_sub(len as u64);
        self.wanted = self.sent;
        let is_full = !self.has_room();
        match &mut self.probe {
            Some(probe) => probe.is_full |= is_full,
            None if is_counted => {
                let (end, acked_before) = (self.sent, self.acked);
                let probe = RttProbe { end, sent_at: now, acked_before, is_alone, is_full };
                self.probe = Some(probe);
            }
            None => {}
        }
    }

    /// Records an ack.
    ///
    /// # Errors
    ///
    /// When it acknowledges nothing new, or more than was sent.
    pub(crate) fn handle_ack(&mut self, read: u64, now: Instant) -> Result<(), ProtocolError> {
        if read <= self.acked || read > self.sent {
            return Err(ProtocolError::Invalid { what: "ack", value: read });
        }
        self.acked = read;
        if let Some(probe) = self.probe.take_if(|probe| probe.end <= read) {
            self.measure(&probe, now);
        }
        Ok(())
    }

    /// Whether the window has room for another chunk.
    fn has_room(&self) -> bool {
        self.sent - self.acked + PACED_LEN as u64 <= self.len
    }

    /// Whether the minimum RTT is to be measured before more is sent.
    fn is_measuring(&self, now: Instant) -> bool {
        let age = self.measured_at.map(|at| now.saturating_duration_since(at));
        self.samples_left > 0 || age.is_some_and(|age| age >= RTT_LIFETIME)
    }

    fn measure(&mut self, probe: &RttProbe, now: Instant) {
        let time = now.saturating_duration_since(probe.sent_at).max(Duration::from_nanos(1));
        let rtt = self.rtt.map_or(time, |rtt| rtt.min(time));
        self.rtt = Some(rtt);
        if probe.is_alone {
            self.samples_left = self.samples_left.saturating_sub(1);
            self.measured_at = Some(now);
        }
        let bdp = u128::from(self.acked - probe.acked_before) * rtt.as_nanos() / time.as_nanos();
        // `WINDOW_MAX` is smaller by far.
        let wanted = u64::try_from(2 * bdp).unwrap_or(u64::MAX);
        // One slow sample is not a slow path, so the window shrinks by an eighth a sample. A sample
        // with little to send says nothing of the path.
        let shrunk = if probe.is_full { self.len - self.len / 8 } else { self.len };
        self.len = wanted.max(shrunk).clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
impl SendWindow {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What the peer has not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent - self.acked
    }

    /// Whether a chunk wants an ack that has not come.
    pub(crate) fn is_owed_ack(&self) -> bool {
        self.wanted > self.acked
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
        window: SendWindow,
    }

    fn micros(time: Duration) -> u64 {
        u64::try_from(time.as_micros()).unwrap()
    }

    impl Path {
        fn new(bytes_per_us: u64, one_way: Duration) -> Self {
            let now = Instant::now();
            let (acks, window) = (VecDeque::new(), SendWindow::default());
            Self { bytes_per_us, one_way, now, idle_at: now, sent: 0, acks, window }
        }

        /// Sends as much as may be for a while, small frames beside it; the bytes a microsecond
        /// that were read, and the most that waited for the path at a time.
        fn run(&mut self, time: Duration) -> (u64, u64) {
            let (end, acked_before, mut queued_max) = (self.now + time, self.window.acked, 0);
            while self.now < end {
                self.window.handle_small();
                while self.window.may_send(self.now) {
                    self.send();
                    let waiting = self.idle_at.saturating_duration_since(self.now);
                    queued_max = queued_max.max(micros(waiting) * self.bytes_per_us);
                }
                let (at, read) = self.acks.pop_front().expect("an ack is on its way");
                self.now = at;
                self.window.handle_ack(read, at).unwrap();
            }
            ((self.window.acked - acked_before) / micros(time), queued_max)
        }

        fn send(&mut self) {
            let len = self.window.chunk_len_max(self.now);
            self.window.handle_sent(len, self.now);
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
        path.run(RTT_LIFETIME + Duration::from_secs(2));
        let (rate, _) = path.run(Duration::from_secs(5));
        assert!(rate > 900, "{rate} bytes a microsecond of 1000");
    }

    #[test]
    fn nothing_is_asked_or_held_back_without_small_frames() {
        let (mut window, now) = (SendWindow::default(), Instant::now());
        window.handle_sent(1 << 30, now);
        assert!(window.may_send(now) && !window.is_paced());
        window.handle_small();
        assert!(window.may_send(now), "one chunk may always be sent, to get an ack");
        window.handle_sent(100, now);
        assert!(!window.may_send(now));
        window.handle_ack((1 << 30) + 100, now).unwrap();
        assert_eq!(window.len, WINDOW_MIN, "that says nothing of the path");
        while window.is_paced() {
            assert!(window.may_send(now));
            window.handle_sent(PACED_LEN, now);
            let _ = window.handle_ack(window.sent, now);
        }
        assert!(window.may_send(now));
        assert!(window.sent >= (1 << 30) + PACED_BYTES);
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
            let (mut window, mut now) = (SendWindow::default(), Instant::now());
            for step in steps {
                match step {
                    Step::Small => window.handle_small(),
                    Step::Send(len) if window.may_send(now) => window.handle_sent(len, now),
                    Step::Send(_) => {}
                    Step::Ack(parts) => {
                        let read = window.acked + (window.sent - window.acked) * parts / 100;
                        let is_news = read > window.acked;
                        prop_assert_eq!(window.handle_ack(read, now).is_ok(), is_news);
                    }
                    Step::Wait(time) => now += time,
                }
                prop_assert!(window.handle_ack(window.acked, now).is_err());
                prop_assert!(window.handle_ack(window.sent + 1, now).is_err());
                prop_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&window.len));
                prop_assert!(window.may_send(now) || window.wanted > window.acked);
            }
            if !window.may_send(now) {
                window.handle_ack(window.wanted, now).unwrap();
                prop_assert!(window.may_send(now));
            }
        }
    }
}
