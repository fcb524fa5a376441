//! One direction of a stream as it arrives: what is read, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::calls::window::SendWindow;
use crate::limits::memory::{MemoryShare, memory_limit};
use crate::limits::quota::PeerKey;

const WINDOW: Window = Window { messages: 4, bytes: 100 };

fn messages(parts: &[&[u8]]) -> Item {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&u32::try_from(part.len()).unwrap().to_le_bytes());
        out.extend_from_slice(part);
    }
    Item::Messages(out.into())
}

fn requests(window: Window) -> RecvStream {
    RecvStream::requests(ReceiveWindow::new(window), WindowMemory::default())
}

fn responses(window: Window) -> RecvStream {
    RecvStream::responses(ReceiveWindow::new(window), WindowMemory::default())
}

/// One step of a reader that takes a message at a time.
enum Step {
    /// A message, and the grant that reading it makes due.
    Message(Bytes, Option<Counts>),
    Other(Next),
}

fn next(recv_stream: &RecvStream) -> Option<Step> {
    let mut context = Context::from_waker(Waker::noop());
    match recv_stream.poll_next(&mut context, Counts::default()) {
        Poll::Ready(Next::Messages(mut frame, due)) => {
            let message = split_message(&mut frame);
            if !frame.is_empty() {
                recv_stream.state().ready.push_front(Item::Messages(frame));
            }
            let mut read = Counts::default();
            read.add(message.len());
            let is_due = read.messages >= due.messages || read.bytes >= due.bytes;
            let (granted, _) = recv_stream.consume(read);
            assert!(is_due || granted.is_none(), "a reader asks for no grant before it is due");
            Some(Step::Message(message, granted))
        }
        Poll::Ready(next) => Some(Step::Other(next)),
        Poll::Pending => None,
    }
}

fn message(recv_stream: &RecvStream) -> Bytes {
    match next(recv_stream) {
        Some(Step::Message(message, _)) => message,
        _ => panic!("no message"),
    }
}

#[test]
fn messages_come_in_order_although_frames_do_not() {
    let recv_stream = requests(WINDOW);
    assert_eq!(recv_stream.insert(2, Item::End(End::HalfClose)), Ok(Inserted::Open));
    assert_eq!(recv_stream.insert(1, messages(&[b"c"])), Ok(Inserted::Open));
    assert!(next(&recv_stream).is_none());
    assert_eq!(recv_stream.insert(0, messages(&[b"a", b"b"])), Ok(Inserted::Complete));
    assert_eq!(
        [message(&recv_stream), message(&recv_stream), message(&recv_stream)],
        ["a", "b", "c"]
    );
    assert!(matches!(next(&recv_stream), Some(Step::Other(Next::End(End::HalfClose)))));
}

#[test]
fn a_failure_comes_after_what_had_arrived() {
    let recv_stream = requests(WINDOW);
    let _ = recv_stream.insert(0, messages(&[b"a"])).unwrap();
    recv_stream.fail(Status::unavailable("gone"));
    assert_eq!(message(&recv_stream), "a");
    assert!(matches!(next(&recv_stream), Some(Step::Other(Next::Failed(_)))));
}

#[test]
fn a_peer_beyond_the_window_is_a_violation() {
    let recv_stream = requests(WINDOW);
    let _ = recv_stream.insert(0, messages(&[&b""[..]; 4])).unwrap();
    assert!(recv_stream.insert(1, messages(&[&b""[..]])).is_err());
    let early = requests(WINDOW);
    let long = [0; 150];
    let _ = early.insert(1, messages(&[&long])).unwrap();
    assert!(early.insert(2, messages(&[&long])).is_err());
}

#[test]
fn the_message_across_the_limit_may_arrive_first() {
    let recv_stream = requests(WINDOW);
    let long = [7; 1000];
    assert_eq!(recv_stream.insert(1, messages(&[&long])), Ok(Inserted::Open));
    assert_eq!(recv_stream.insert(2, Item::End(End::HalfClose)), Ok(Inserted::Open));
    assert_eq!(recv_stream.insert(0, messages(&[b"a"])), Ok(Inserted::Complete));
    assert_eq!([message(&recv_stream), message(&recv_stream)], [&b"a"[..], &long[..]]);
}

/// A second one would be kept, and no window counts it.
#[test]
fn an_answer_has_its_headers_once_and_first() {
    let headers = || Item::Headers(Bytes::from_static(b"block"));
    let recv_stream = responses(WINDOW);
    assert_eq!(recv_stream.insert(0, headers()), Ok(Inserted::Open));
    assert!(recv_stream.insert(1, headers()).is_err());
    let early = responses(WINDOW);
    assert!(early.insert(1, headers()).is_err());
    let without = responses(WINDOW);
    assert!(without.insert(0, messages(&[b"a"])).is_err());
    let refused = responses(WINDOW);
    assert_eq!(refused.insert(0, Item::End(End::HalfClose)), Ok(Inserted::Complete));
}

/// An end holds the block of the trailers, which no window counts either.
#[test]
fn a_stream_ends_once_and_last() {
    let end = || Item::End(End::HalfClose);
    let twice = requests(WINDOW);
    let _ = twice.insert(1, end()).unwrap();
    assert!(twice.insert(2, end()).is_err());
    let behind = requests(WINDOW);
    let _ = behind.insert(1, end()).unwrap();
    assert!(behind.insert(2, messages(&[b"a"])).is_err());
    let before = requests(WINDOW);
    let _ = before.insert(2, messages(&[b"a"])).unwrap();
    assert!(before.insert(1, end()).is_err());
    let complete = requests(WINDOW);
    assert_eq!(complete.insert(0, end()), Ok(Inserted::Complete));
    assert!(complete.insert(1, messages(&[b"a"])).is_err());
}

#[test]
fn no_more_frames_wait_for_one_than_the_window_has_messages() {
    let (empty, end) = (|| messages(&[b""]), || Item::End(End::HalfClose));
    // Three at most, since the one that they wait for has a message too.
    let stream = requests(WINDOW);
    (1..4).for_each(|seq| assert!(stream.insert(seq, empty()).is_ok(), "{seq}"));
    assert!(stream.insert(4, empty()).is_err());
    // Headers have none.
    let answers = responses(WINDOW);
    (1..5).for_each(|seq| assert!(answers.insert(seq, empty()).is_ok(), "{seq}"));
    assert_eq!(answers.insert(5, end()), Ok(Inserted::Open));
    let far = responses(WINDOW);
    assert!(far.insert(6, end()).is_err());
    // What has been received leaves room for as many less.
    let begun = requests(WINDOW);
    let _ = begun.insert(0, messages(&[b"", b""])).unwrap();
    assert!(begun.insert(2, empty()).is_ok());
    assert!(begun.insert(3, empty()).is_err());
}

/// The reader has those before the last already, and the window counts them no longer, while the
/// frame is kept as a whole.
#[test]
fn a_long_frame_has_one_message() {
    let wide = Window { messages: 4, bytes: 1 << 20 };
    let long = vec![0; BATCH_LEN_MAX];
    let recv_stream = requests(wide);
    assert!(recv_stream.insert(0, messages(&[&long])).is_ok());
    assert!(recv_stream.insert(1, messages(&[b"", &long])).is_err());
}

/// A message of which the frame says that it is compressed, with its length.
fn deflated(lens: &[usize]) -> Item {
    let parts: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
    match messages(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()) {
        Item::Messages(frame) => Item::Deflated(frame),
        other => other,
    }
}

#[test]
fn a_compressed_message_is_alone_and_counts_as_it_came() {
    let recv_stream = requests(WINDOW);
    let _ = recv_stream.insert(1, messages(&[b"b"])).unwrap();
    let _ = recv_stream.insert(0, deflated(&[60])).unwrap();
    let first = next(&recv_stream);
    let Some(Step::Other(Next::Deflated(first, _))) = first else { panic!("it is compressed") };
    assert_eq!(first.len(), 60);
    assert!(matches!(next(&recv_stream), Some(Step::Message(message, _)) if message == "b"));
    assert!(requests(WINDOW).insert(0, deflated(&[20, 20])).is_err(), "two share the frame");
    let cut = Item::Deflated(Bytes::from_static(&[9, 0, 0, 0, 1]));
    assert!(
        requests(WINDOW).insert(0, cut).is_err(),
        "it inflates to less than its announced \
                                                       length"
    );
    assert!(responses(WINDOW).insert(0, deflated(&[20])).is_err(), "before headers");
    // The one that crosses the line is the last.
    let full = requests(WINDOW);
    let _ = full.insert(0, deflated(&[500])).unwrap();
    assert!(full.insert(1, deflated(&[20])).is_err());
}

#[test]
fn a_stream_that_failed_keeps_nothing_that_cannot_be_read() {
    let recv_stream = requests(WINDOW);
    let early = Bytes::from(vec![0; 4]);
    let _ = recv_stream.insert(1, Item::Messages(early.clone())).unwrap();
    recv_stream.fail(Status::resource_exhausted("no room"));
    let _ = recv_stream.insert(0, Item::Messages(early.clone())).unwrap();
    assert!(early.is_unique(), "neither is kept");
    assert!(matches!(next(&recv_stream), Some(Step::Other(Next::Failed(_)))));
}

/// A hostile peer may open streams first and fill them later, so a window counts from its
/// beginning.
#[test]
fn a_window_counts_at_once_and_widens_while_half_is_free() {
    let of_message = crate::limits::connection::MESSAGE_HELD;
    let bound = |messages: u64, bytes: u64| bytes + messages * of_message;
    let limit = memory_limit(Some(128 << 10));
    let share =
        |number| MemoryShare::new(&limit, PeerKey::Local, number, &std::sync::Arc::default());
    let open = || {
        let window = ReceiveWindow::widening(WINDOW, Window { messages: 8, bytes: 150 });
        RecvStream::requests(window, WindowMemory::open(&share(1), WINDOW).unwrap())
    };
    let stream = open();
    assert_eq!(limit.total(), bound(4, 100));
    // The message that crosses the line is there although it does not fit.
    let _ = stream.insert(0, messages(&[&[0; 5000]])).unwrap();
    assert_eq!(limit.total(), bound(1, 5000));
    let _ = message(&stream);
    assert_eq!(limit.total(), bound(8, 150), "it is read, and the window is wider");
    let _ = stream.insert(2, messages(&[&[0; 40]])).unwrap();
    stream.fail(Status::unavailable("gone"));
    assert_eq!(limit.total(), 0, "nothing can come, and what waits for a frame is dropped");
    let others = share(2).take(72 << 10);
    let stream = open();
    let _ = stream.insert(0, messages(&[&[0; 60]])).unwrap();
    let _ = message(&stream);
    assert_eq!(limit.total(), (72 << 10) + bound(4, 100), "it goes on, and is not wider");
    let _ = stream.insert(1, messages(&[b"a"])).unwrap();
    assert_eq!(stream.insert(2, Item::End(End::HalfClose)), Ok(Inserted::Complete));
    assert_eq!(limit.total(), (72 << 10) + bound(1, 1), "what waits is all that comes");
    drop((stream, others));
    assert_eq!(limit.total(), 0);
    let _others = share(2).take(32 << 10);
    let taken: Vec<_> = std::iter::from_fn(|| WindowMemory::open(&share(1), WINDOW).ok()).collect();
    assert!(taken.len() < 64, "a stream is refused where there is no memory for its window");
}

/// A stream of messages that are read as they come.
struct Read {
    stream: RecvStream,
    place: u64,
}

impl Read {
    /// Reads as many bytes as the widest window has.
    fn go_on(&mut self) {
        for _ in 0..128 {
            let _ = self.stream.insert(self.place, messages(&[&[0; 16 << 10]])).unwrap();
            let _ = message(&self.stream);
            self.place += 1;
        }
    }

    fn window(&self) -> Window {
        self.stream.state().window.window()
    }
}

/// Otherwise the first few of them take its share, and the next call of that address is refused.
#[test]
fn busy_streams_of_a_holder_widen_alike_and_leave_room() {
    let limit = memory_limit(Some(64 << 20));
    let share = MemoryShare::new(&limit, PeerKey::Local, 1, &std::sync::Arc::default());
    let limits = crate::Limits::default();
    let first = limits.first_request_window();
    let mut streams: Vec<Read> = Vec::new();
    for count in 1..=40 {
        let memory = WindowMemory::open(&share, first);
        let memory = memory.unwrap_or_else(|status| panic!("stream {count}: {status}"));
        let window = ReceiveWindow::widening(first, limits.window());
        streams.push(Read { stream: RecvStream::requests(window, memory), place: 0 });
        streams.iter_mut().for_each(Read::go_on);
        if count == 1 {
            assert!(streams[0].window().bytes >= 1 << 20, "alone it is wide");
        }
    }
    streams.iter_mut().for_each(Read::go_on);
    let widths: Vec<_> = streams.iter().map(|it| it.window().bytes).collect();
    let (least, most) = (widths.iter().min().unwrap(), widths.iter().max().unwrap());
    assert!(most / least <= 4, "{widths:?}");
    assert!(share.check(1 << 20).is_ok(), "{} of 28 MiB are taken", limit.total());
}

/// Callers may have any number of streams with the window that each begins with.
#[test]
fn responses_are_never_refused_and_widen_within_a_bound() {
    let limit = memory_limit(Some(64 << 20));
    let share = MemoryShare::new(&limit, PeerKey::Local, 1, &std::sync::Arc::default());
    let limits = crate::Limits::default();
    let first = limits.first_response_window();
    let open = || {
        let window = ReceiveWindow::widening(first, limits.window());
        let stream = RecvStream::responses(window, WindowMemory::beyond(&share, first));
        let _ = stream.insert(0, Item::Headers(Bytes::new())).unwrap();
        assert!(matches!(next(&stream), Some(Step::Other(Next::Headers(_)))));
        Read { stream, place: 1 }
    };
    let idle: Vec<_> = (0..500).map(|_| open()).collect();
    assert_eq!(limit.total(), 0);
    let mut alone = open();
    alone.go_on();
    assert!(alone.window().bytes >= 1 << 20);
    let mut busy: Vec<_> = (0..40).map(|_| open()).collect();
    for _ in 0..3 {
        busy.iter_mut().for_each(Read::go_on);
    }
    let held = limit.total();
    assert!((1 << 20..=28 << 20).contains(&held), "{held}");
    drop((idle, alone, busy));
    assert_eq!(limit.total(), 0);
}

fn item() -> impl Strategy<Value = Item> {
    let lens = prop::collection::vec(0usize..200, 1..4);
    let frame = lens.prop_map(|lens| {
        let parts: Vec<_> = lens.into_iter().map(|len| vec![0; len]).collect();
        messages(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
    });
    let end = Just(()).prop_map(|()| Item::End(End::HalfClose));
    let headers = Just(()).prop_map(|()| Item::Headers(Bytes::new()));
    let short = (8usize..200).prop_map(|len| deflated(&[len]));
    prop_oneof![8 => frame, 2 => short, 1 => end, 1 => headers]
}

/// Returns the number of frames that a stream keeps, and the bytes of their messages.
fn kept(recv_stream: &RecvStream) -> (usize, usize) {
    let state = recv_stream.state();
    let ready = state.ready.iter().map(|item| match item {
        Item::Messages(messages) | Item::Deflated(messages) => messages.len(),
        Item::Headers(_) | Item::End(_) => 0,
    });
    let bytes = state.ahead_bytes + ready.sum::<usize>();
    (state.ready.len() + state.ahead.ahead_count(), bytes)
}

proptest! {
    /// Whatever arrives, and wherever it says that it stands, what is kept of it is bounded.
    #[test]
    fn what_is_kept_is_bounded_by_the_window(
        is_answer in any::<bool>(),
        frames in prop::collection::vec((0u64..12, item()), 0..40),
        reads in 0usize..40,
    ) {
        let recv_stream = match is_answer {
            true => responses(WINDOW),
            false => requests(WINDOW),
        };
        let mut longest = 0;
        for (index, (seq, item)) in frames.into_iter().enumerate() {
            if let Item::Messages(messages) | Item::Deflated(messages) = &item {
                longest = longest.max(messages.len());
            }
            // One that costs its peer the connection is dropped with all else.
            if recv_stream.insert(seq, item).is_err() {
                return Ok(());
            }
            if index >= reads {
                continue;
            }
            let _ = next(&recv_stream);
        }
        let (frames, bytes) = kept(&recv_stream);
        let messages = WINDOW.messages as usize;
        prop_assert!(frames <= messages + 2, "{frames} frames");
        // The window, the message that crosses its line, and what has been read of a frame.
        let max = WINDOW.bytes as usize + messages * MESSAGE_LEN_LEN + 2 * longest;
        prop_assert!(bytes <= max, "{bytes} bytes, not {max}");
    }

    /// A sender that heeds the window may have its frames arrive in any order.
    #[test]
    fn a_peer_within_the_window_is_never_refused(
        is_answer in any::<bool>(),
        lens in prop::collection::vec(0usize..300, 1..60),
        picks in prop::collection::vec(0usize..64, 1..200),
    ) {
        let recv_stream = match is_answer {
            true => responses(WINDOW),
            false => requests(WINDOW),
        };
        let mut sending = SendWindow::new(WINDOW);
        let (mut seq, mut sent, mut read, mut is_ended) = (0, 0, 0, false);
        let mut on_their_way = Vec::new();
        if is_answer {
            on_their_way.push((0, Item::Headers(Bytes::new())));
            seq = 1;
        }
        let mut picks = picks.into_iter().cycle();
        while !is_ended {
            let pick = picks.next().unwrap();
            // What is picked, or else what can be done.
            let is_done = (0..3).any(|step| match (pick + step) % 3 {
                0 if sent < lens.len() && sending.is_open() => {
                    // As many as are picked share a frame, as far as the window reaches.
                    let mut parts = Vec::new();
                    while sent < lens.len() && sending.is_open() && parts.len() <= pick % 3 {
                        sending.send(lens[sent]);
                        parts.push(vec![7; lens[sent]]);
                        sent += 1;
                    }
                    let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
                    on_their_way.push((seq, messages(&parts)));
                    seq += 1;
                    if sent == lens.len() {
                        on_their_way.push((seq, Item::End(End::HalfClose)));
                    }
                    true
                }
                1 if !on_their_way.is_empty() => {
                    let (seq, item) = on_their_way.swap_remove(pick % on_their_way.len());
                    assert!(recv_stream.insert(seq, item).is_ok());
                    true
                }
                2 => match next(&recv_stream) {
                    Some(Step::Other(Next::Headers(_))) => true,
                    Some(Step::Message(message, due)) => {
                        assert_eq!(message.len(), lens[read]);
                        read += 1;
                        due.into_iter().for_each(|granted| sending.handle_grant(granted));
                        true
                    }
                    Some(Step::Other(Next::End(_))) => {
                        is_ended = true;
                        true
                    }
                    _ => false,
                },
                _ => false,
            });
            prop_assert!(is_done, "nothing can be done");
        }
        prop_assert_eq!(read, lens.len());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let recv_stream = requests(WINDOW);
        if recv_stream.insert(0, Item::Messages(bytes.into())).is_ok() {
            while next(&recv_stream).is_some() {}
        }
    }
}
