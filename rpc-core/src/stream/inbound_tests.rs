//! One direction of a stream as it arrives: what is read, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::calls::window::SendWindow;

const WINDOW: Window = Window { messages: 4, bytes: 100 };

fn messages(parts: &[&[u8]]) -> Item {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&u32::try_from(part.len()).unwrap().to_le_bytes());
        out.extend_from_slice(part);
    }
    Item::Messages(out.into())
}

fn next(inbound: &Inbound) -> Option<Next> {
    match inbound.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(next) => Some(next),
        Poll::Pending => None,
    }
}

fn message(inbound: &Inbound) -> Bytes {
    match next(inbound) {
        Some(Next::Message(message, _)) => message,
        other => panic!("no message: {other:?}"),
    }
}

#[test]
fn messages_come_in_order_although_frames_do_not() {
    let inbound = Inbound::new(WINDOW);
    assert_eq!(inbound.insert(2, Item::End(End::HalfClose)), Ok(Inserted::Open));
    assert_eq!(inbound.insert(1, messages(&[b"c"])), Ok(Inserted::Open));
    assert!(next(&inbound).is_none());
    assert_eq!(inbound.insert(0, messages(&[b"a", b"b"])), Ok(Inserted::Complete));
    assert_eq!([message(&inbound), message(&inbound), message(&inbound)], ["a", "b", "c"]);
    assert!(matches!(next(&inbound), Some(Next::End(End::HalfClose))));
}

#[test]
fn a_failure_comes_after_what_had_arrived() {
    let inbound = Inbound::new(WINDOW);
    let _ = inbound.insert(0, messages(&[b"a"])).unwrap();
    inbound.fail(Status::unavailable("gone"));
    assert_eq!(message(&inbound), "a");
    assert!(matches!(next(&inbound), Some(Next::Failed(_))));
}

#[test]
fn a_peer_beyond_the_window_is_a_violation() {
    let inbound = Inbound::new(WINDOW);
    let _ = inbound.insert(0, messages(&[&b""[..]; 4])).unwrap();
    assert!(inbound.insert(1, messages(&[&b""[..]])).is_err());
    let early = Inbound::new(WINDOW);
    let long = [0; 150];
    let _ = early.insert(1, messages(&[&long])).unwrap();
    assert!(early.insert(2, messages(&[&long])).is_err());
}

#[test]
fn the_message_that_crosses_the_line_may_come_before_those_within_it() {
    let inbound = Inbound::new(WINDOW);
    let long = [7; 1000];
    assert_eq!(inbound.insert(1, messages(&[&long])), Ok(Inserted::Open));
    assert_eq!(inbound.insert(2, Item::End(End::HalfClose)), Ok(Inserted::Open));
    assert_eq!(inbound.insert(0, messages(&[b"a"])), Ok(Inserted::Complete));
    assert_eq!([message(&inbound), message(&inbound)], [&b"a"[..], &long[..]]);
}

proptest! {
    /// Whoever keeps to the window may have its frames arrive in any order.
    #[test]
    fn a_peer_within_the_window_is_never_refused(
        lens in prop::collection::vec(0usize..300, 1..60),
        picks in prop::collection::vec(0usize..64, 1..200),
    ) {
        let inbound = Inbound::new(WINDOW);
        let mut sending = SendWindow::new(WINDOW);
        let (mut sent, mut read) = (0, 0);
        let mut on_their_way = Vec::new();
        let mut picks = picks.into_iter().cycle();
        while read < lens.len() {
            let pick = picks.next().unwrap();
            // What is picked, or else what can be done.
            let is_done = (0..3).any(|step| match (pick + step) % 3 {
                0 if sent < lens.len() && sending.is_open() => {
                    sending.send(lens[sent]);
                    on_their_way.push((sent as u64, messages(&[&vec![7; lens[sent]]])));
                    sent += 1;
                    true
                }
                1 if !on_their_way.is_empty() => {
                    let (place, item) = on_their_way.swap_remove(pick % on_their_way.len());
                    assert_eq!(inbound.insert(place, item), Ok(Inserted::Open));
                    true
                }
                2 => match next(&inbound) {
                    Some(Next::Message(message, due)) => {
                        assert_eq!(message.len(), lens[read]);
                        read += 1;
                        due.into_iter().for_each(|granted| sending.handle_grant(granted));
                        true
                    }
                    _ => false,
                },
                _ => false,
            });
            prop_assert!(is_done, "nothing can be done");
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let inbound = Inbound::new(WINDOW);
        if inbound.insert(0, Item::Messages(bytes.into())).is_ok() {
            while next(&inbound).is_some() {}
        }
    }
}
