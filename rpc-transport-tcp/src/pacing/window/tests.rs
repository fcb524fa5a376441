//! The window over paths of any length, and its single steps.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A path to a peer that reads everything as it arrives and acknowledges it at once.
struct Path {
    bytes_per_us: u64,
    one_way: Duration,
    now: Instant,
    /// Time at which the path will have carried everything sent so far.
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

    /// Sends as much as possible for `time`, next to small frames. Returns the bytes read per
    /// microsecond and the maximum queue on the path.
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
fn a_short_path_queues_little() {
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
fn without_small_frames_no_ack_is_requested() {
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

/// Returns a window of `len` bytes whose RTT of 1 ms was measured at `now`.
fn measured(len: u64, now: Instant) -> SendWindow {
    let mut window = SendWindow {
        len,
        rtt: Some(MILLISECOND),
        measured_at: Some(now),
        samples_left: 0,
        ..SendWindow::default()
    };
    window.handle_small();
    window
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn a_window_is_full_at_its_length() {
    let (chunk, now) = (PACED_LEN as u64, Instant::now());
    let mut window = measured(3 * chunk, now);
    for in_flight in [1, 2, 3] {
        assert!(window.may_send(now));
        window.handle_sent(PACED_LEN, now);
        assert_eq!(window.in_flight(), in_flight * chunk);
    }
    assert!(!window.may_send(now));
    window.probe = None;
    window.handle_ack(chunk, now).unwrap();
    assert!(window.may_send(now));
    window.handle_sent(1, now);
    assert!(!window.may_send(now), "a chunk would be beyond it");
}

#[test]
fn a_window_is_twice_the_bytes_acknowledged_per_rtt() {
    let (chunk, now) = (PACED_LEN as u64, Instant::now());
    // 4 chunks in twice the minimum RTT: the BDP is 2, and the window 4.
    let mut window = measured(4 * chunk, now);
    (0..4).for_each(|_| window.handle_sent(PACED_LEN, now));
    assert_eq!(window.probe.as_ref().map(|probe| (probe.end, probe.is_full)), Some((chunk, true)));
    window.handle_ack(4 * chunk, now + 2 * MILLISECOND).unwrap();
    assert_eq!((window.len(), window.rtt), (4 * chunk, Some(MILLISECOND)));
    // In one RTT they are the BDP. A shorter trip becomes the minimum.
    let now = now + 10 * MILLISECOND;
    (0..4).for_each(|_| window.handle_sent(PACED_LEN, now));
    window.handle_ack(8 * chunk, now + MILLISECOND / 2).unwrap();
    assert_eq!((window.len(), window.rtt), (8 * chunk, Some(MILLISECOND / 2)));
}

#[test]
fn only_a_full_window_shrinks() {
    let (chunk, now) = (PACED_LEN as u64, Instant::now());
    let mut window = measured(8 * chunk, now);
    (0..8).for_each(|_| window.handle_sent(PACED_LEN, now));
    window.handle_ack(chunk, now + 100 * MILLISECOND).unwrap();
    assert_eq!(window.len(), 7 * chunk);
    let mut window = measured(8 * chunk, now);
    (0..7).for_each(|_| window.handle_sent(PACED_LEN, now));
    window.handle_ack(chunk, now + 100 * MILLISECOND).unwrap();
    assert_eq!(window.len(), 8 * chunk);
}

#[test]
fn a_window_has_bounds() {
    let now = Instant::now();
    let mut window = measured(WINDOW_MIN, now);
    (0..2).for_each(|_| window.handle_sent(PACED_LEN, now));
    window.handle_ack(1, now + 1000 * MILLISECOND).unwrap();
    window.handle_ack(WINDOW_MIN, now + 1000 * MILLISECOND).unwrap();
    assert_eq!(window.len(), WINDOW_MIN);
    let mut window = measured(WINDOW_MAX, now);
    window.handle_sent(1 << 30, now);
    window.handle_ack(1 << 30, now + MILLISECOND).unwrap();
    assert_eq!(window.len(), WINDOW_MAX);
}

#[test]
fn the_rtt_is_measured_by_short_lone_chunks() {
    let mut now = Instant::now();
    let mut window = SendWindow::default();
    window.handle_small();
    let mut sample = |window: &mut SendWindow, time: Duration| {
        assert_eq!(window.chunk_len_max(now), ALONE_LEN);
        window.handle_sent(ALONE_LEN, now);
        assert!(!window.may_send(now), "it is to be alone");
        assert_eq!(window.chunk_len_max(now), PACED_LEN);
        now += time;
        window.handle_ack(window.sent, now).unwrap();
        now
    };
    for ms in [3, 1, 2, 5] {
        sample(&mut window, ms * MILLISECOND);
    }
    assert_eq!((window.rtt, window.samples_left), (Some(MILLISECOND), 0));
    let measured_at = window.measured_at.unwrap();
    let too_early = measured_at + RTT_LIFETIME - Duration::from_nanos(1);
    assert_eq!(window.chunk_len_max(too_early), PACED_LEN);
    let late = measured_at + RTT_LIFETIME;
    assert_eq!(window.chunk_len_max(late), ALONE_LEN);
    window.handle_sent(ALONE_LEN, late);
    assert_eq!((window.rtt, window.samples_left), (None, RTT_SAMPLE_COUNT));
    window.handle_ack(window.sent, late + 2 * MILLISECOND).unwrap();
    assert_eq!((window.rtt, window.samples_left), (Some(2 * MILLISECOND), RTT_SAMPLE_COUNT - 1));
    assert_eq!(window.measured_at, Some(late + 2 * MILLISECOND));
}

#[test]
fn only_lone_paced_chunks_measure_the_rtt() {
    let now = Instant::now();
    let mut window = measured(8 * PACED_LEN as u64, now);
    window.handle_sent(PACED_LEN, now);
    window.handle_sent(PACED_LEN, now);
    window.handle_ack(PACED_LEN as u64, now + MILLISECOND).unwrap();
    assert_eq!(window.measured_at, Some(now + MILLISECOND), "it was alone");
    window.handle_sent(PACED_LEN, now + 2 * MILLISECOND);
    window.handle_ack(window.sent, now + 3 * MILLISECOND).unwrap();
    assert_eq!(window.measured_at, Some(now + MILLISECOND), "another was on its way");
    let mut window = SendWindow::default();
    window.handle_sent(PACED_LEN, now);
    assert!(window.probe.is_none(), "it wants no ack");
    window.handle_small();
    window.handle_sent(PACED_LEN, now);
    assert!(window.probe.is_none(), "its ack counts the chunk before, too");
    window.handle_sent(PACED_LEN, now);
    assert_eq!(window.probe.map(|probe| probe.is_alone), Some(false));
}

#[test]
fn acks_must_bring_news_and_match_sent_bytes() {
    let now = Instant::now();
    let mut window = measured(WINDOW_MIN, now);
    window.handle_sent(100, now);
    assert!(window.is_owed_ack());
    for read in [0, 101] {
        assert!(window.handle_ack(read, now).is_err());
    }
    window.handle_ack(100, now).unwrap();
    assert!(!window.is_owed_ack() && window.handle_ack(100, now).is_err());
}

#[test]
fn pacing_ends_after_its_bytes() {
    let now = Instant::now();
    let mut window = SendWindow::default();
    window.handle_small();
    window.handle_sent(usize::try_from(PACED_BYTES - 1).unwrap(), now);
    assert!(window.is_paced());
    window.handle_sent(1, now);
    assert!(!window.is_paced() && window.may_send(now));
}

#[derive(Debug, Clone)]
enum WindowStep {
    Small,
    Send(usize),
    /// An ack for this percentage of the unread bytes.
    Ack(u64),
    Wait(Duration),
}

fn step() -> impl Strategy<Value = WindowStep> {
    prop_oneof![
        Just(WindowStep::Small),
        (1..=PACED_LEN).prop_map(WindowStep::Send),
        (1..=100_u64).prop_map(WindowStep::Ack),
        (0..20_000_u64).prop_map(|ms| WindowStep::Wait(Duration::from_millis(ms))),
    ]
}

proptest! {
    #[test]
    fn a_sender_that_must_wait_is_owed_an_ack(
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let (mut window, mut now) = (SendWindow::default(), Instant::now());
        for step in steps {
            match step {
                WindowStep::Small => window.handle_small(),
                WindowStep::Send(len) if window.may_send(now) => window.handle_sent(len, now),
                WindowStep::Send(_) => {}
                WindowStep::Ack(parts) => {
                    let read = window.acked + (window.sent - window.acked) * parts / 100;
                    let is_news = read > window.acked;
                    prop_assert_eq!(window.handle_ack(read, now).is_ok(), is_news);
                }
                WindowStep::Wait(time) => now += time,
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
