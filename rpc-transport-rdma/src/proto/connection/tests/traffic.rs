//! The outgoing messages that incoming ones cause.

use super::*;

#[test]
fn no_more_is_on_its_way_than_the_queue_pair_has_room_for() {
    let mut alone = Alone::open(|rules| rules.send_depth = 2);
    (0..3).for_each(|_| alone.send_frame());
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame); 2]);
    alone.complete();
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame)]);
    alone.handle(Event::Probe);
    assert_eq!(alone.sent(), []);
    alone.complete();
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Probe)]);
    alone.complete_all();
    assert_eq!((alone.state.in_flight, alone.state.control_slots.len()), (0, 4));
}

#[test]
fn reads_take_room_where_they_go_with_the_messages_alone() {
    for (reads_with_messages, expected) in [(true, 2), (false, 0)] {
        let mut alone = Alone::open(|rules| rules.reads_with_messages = reads_with_messages);
        alone.accept(3, 1500, None);
        alone.give_memory();
        let reads = alone.sent().iter().filter(|out| matches!(out, Out::Read { .. })).count();
        let messages = alone.posted.len() - reads;
        assert_eq!((reads, alone.state.in_flight - messages), (2, expected));
        alone.complete_all();
        assert_eq!(alone.state.in_flight, 0);
    }
    let full = |reads_with_messages| {
        let mut alone = Alone::open(|rules| {
            (rules.reads_with_messages, rules.send_depth) = (reads_with_messages, 1);
        });
        alone.accept(3, 500, None);
        alone.give_memory();
        alone.send_frame();
        alone.sent().contains(&Out::Read { len: 500 })
    };
    assert!(full(false) && !full(true), "queues for READs have room of their own");
}

#[test]
fn an_offer_takes_room_for_its_bind_too() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    life::offer_by_window(&mut alone);
    assert_eq!(alone.state.in_flight, 2);
    alone.complete_all();
    assert_eq!(alone.state.in_flight, 0);
}

#[test]
fn frames_are_counted_and_as_long_as_they_say() {
    let mut alone = Alone::open(|_| {});
    alone.send_frame();
    alone.send(Outgoing::Control([7; HEADER_LEN]));
    alone.send_large(1);
    alone.sent();
    let lens: Vec<_> = alone.posted.iter().map(|message| bytes_of(message).len()).collect();
    assert_eq!(lens[..2], [MESSAGE_HEADER_LEN + 100, CONTROL_SLOT_LEN]);
    assert_eq!(bytes_of(&alone.posted[1])[MESSAGE_HEADER_LEN..], [7; HEADER_LEN]);
    let (_, offer) = MessageHeader::parse(bytes_of(&alone.posted[2])).unwrap();
    assert!(Rts::parse(offer).is_ok(), "nothing follows the offer");
    let written = (100 + HEADER_LEN) as u64;
    assert_eq!(alone.counters.written_bytes.value(), written);
    assert_eq!((alone.counters.small_sent.value(), alone.counters.large_sent.value()), (1, 1));
    alone.say(MessageKind::Frame, &[1; HEADER_LEN]);
    let received = (MESSAGE_HEADER_LEN + HEADER_LEN) as u64;
    assert_eq!(alone.counters.received_bytes.value(), received);
    assert_eq!((alone.counters.small_received.value(), alone.deliveries()), (1, 1));
}

#[test]
fn the_peer_is_told_that_more_waits_than_it_grants() {
    let wants_more = |frame_count: usize| {
        let mut alone = Alone::open(|_| {});
        (0..frame_count).for_each(|_| alone.send_frame());
        alone.sent();
        let last = bytes_of(alone.posted.back().unwrap());
        MessageHeader::parse(last).unwrap().0.grant.wants_more
    };
    assert!(!wants_more(4) && wants_more(5));
}

#[test]
fn a_header_alone_waits_for_a_slot_of_its_kind() {
    let mut alone = Alone::open(|rules| rules.send_depth = 64);
    alone.grant(8);
    alone.sent();
    (0..6).for_each(|_| alone.send(Outgoing::Control([7; HEADER_LEN])));
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame); 4]);
    for _ in 0..2 {
        alone.complete();
        assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame)]);
    }
}

#[test]
fn slots_are_asked_back_once_there_is_a_slot_to_say_so() {
    let mut alone = Alone::open(|rules| rules.send_depth = 64);
    alone.grant(8);
    alone.ask_for_credit();
    alone.sent();
    alone.complete_all();
    (0..4).for_each(|_| alone.send(Outgoing::Control([7; HEADER_LEN])));
    assert_eq!(alone.sent().len(), 4);
    alone.handle(Event::Reclaim);
    assert_eq!(alone.sent(), []);
    alone.complete();
    assert!(matches!(alone.sent()[..], [Out::Message(MessageKind::Reclaim { .. })]));
}

#[test]
fn a_frame_is_fetched_released_and_delivered() {
    let mut alone = Alone::open(|_| {});
    alone.accept(3, 1500, None);
    assert!(matches!(alone.actions()[..], [Action::TakeMemory]));
    let len = HEADER_LEN + 1500;
    assert!(alone.state.is_waiting(3) && !alone.state.is_waiting(4));
    assert_eq!(alone.state.head(3, len), Some(&[1; HEADER_LEN][..]));
    assert_eq!((alone.state.head(3, len + 1), alone.state.head(4, len)), (None, None));
    alone.give_memory();
    assert!(!alone.state.is_waiting(3));
    alone.sent();
    alone.complete_all();
    assert!(matches!(alone.state.poll_delivery(), Some(Arrival::Large(_))));
    let release = MessageKind::Ats { transfer: 3, outcome: AtsStatus::Read };
    assert_eq!(alone.sent()[..1], [Out::Message(release)]);
    assert_eq!(alone.cancellations.snapshot().pulls_stopped, 0);
}

#[test]
fn a_read_without_room_goes_out_with_its_turn() {
    let mut alone = Alone::open(|_| {});
    let taken = alone.share.turn(READ_BYTES);
    alone.accept(3, 500, None);
    alone.give_memory();
    let reads = |sent: Vec<Out>| sent.into_iter().filter(|out| matches!(out, Out::Read { .. }));
    assert_eq!(reads(alone.sent()).count(), 0);
    let wanted = alone.actions().into_iter().find_map(|action| match action {
        Action::TakeTurn { len } => Some(len),
        _ => None,
    });
    drop(taken);
    let turn = alone.share.turn(wanted.expect("it waits for its turn").into());
    assert_eq!(reads(alone.sent()).count(), 0, "nothing says that there is room");
    alone.handle(Event::Turn(turn));
    assert_eq!(reads(alone.sent()).collect::<Vec<_>>(), [Out::Read { len: 500 }]);
}

/// Returns the key that our release of the peer's offer invalidates.
fn taken_by_release(takes_keys_away: bool, is_cancelled: bool) -> Option<RemoteKey> {
    let mut alone = Alone::open(|rules| rules.takes_keys_away = takes_keys_away);
    alone.accept(3, 500, None);
    alone.sent();
    if is_cancelled {
        alone.say(MessageKind::Cancel { transfer: 3 }, &[]);
        assert!(matches!(alone.state.poll_delivery(), Some(Arrival::Cancelled { transfer: 3 })));
    }
    alone.handle(Event::Cancelled { transfer: 3 });
    let release = MessageKind::Ats { transfer: 3, outcome: AtsStatus::Refused };
    assert!(alone.sent().contains(&Out::Message(release)));
    let mut keys = alone.posted.iter().filter_map(|it| match it {
        Transmit::Message { takes_key, .. } => *takes_key,
        _ => None,
    });
    keys.next_back()
}

#[test]
fn a_release_invalidates_its_key_unless_withdrawn() {
    assert_eq!(taken_by_release(true, false), Some(PEER_KEY));
    assert_eq!(taken_by_release(true, true), None, "the peer may have revoked it");
    assert_eq!(taken_by_release(false, false), None);
}

#[test]
fn a_message_invalidates_only_the_released_key() {
    let after = |kind: &dyn Fn(u32) -> MessageKind, key: Option<RemoteKey>| {
        let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
        let ours = life::offer_by_window(&mut alone);
        let sent = MessageHeader::parse(bytes_of(&alone.posted[0])).unwrap().0.kind;
        let MessageKind::Rts { transfer } = sent else { panic!("{sent:?}") };
        alone.complete_all();
        alone.say_with(kind(transfer), &[1; HEADER_LEN], Some(key.unwrap_or(ours)));
        alone
    };
    let release = |transfer| MessageKind::Ats { transfer, outcome: AtsStatus::Read };
    let mut released = after(&release, None);
    assert!(released.end().is_none());
    assert!(matches!(released.actions()[..], [Action::Free(_)]), "the key is dead");
    assert!(after(&|_| MessageKind::Frame, None).has_violation());
    assert!(after(&|transfer| release(transfer + 1), None).has_violation());
    let mut kept = after(&release, Some(RemoteKey(77)));
    assert!(kept.end().is_none() && kept.actions().is_empty(), "ours is alive");
    assert_eq!(kept.sent()[0], Out::Invalidate);
}

#[test]
fn a_call_that_is_given_up_takes_its_offers_back_and_no_others() {
    let mut alone = Alone::open(|_| {});
    (1..3).for_each(|call| alone.send_large(call));
    alone.sent();
    alone.handle(Event::Abandon { call: 1 });
    let sent = alone.sent();
    assert!(matches!(sent[..], [Out::Message(MessageKind::Cancel { .. })]), "{sent:?}");
    assert_eq!(alone.cancellations.snapshot().withdrawn, 1);
    // Offers that still wait go out all the same, and are taken back at once.
    alone.grant(4);
    alone.sent();
    let mut alone = Alone::open(|_| {});
    (1..3).for_each(|call| alone.send_large(call));
    alone.handle(Event::Abandon { call: 2 });
    let sent = alone.sent();
    let kinds = sent.iter().map(|out| matches!(out, Out::Message(MessageKind::Rts { .. })));
    assert_eq!(kinds.collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(alone.cancellations.snapshot().withdrawn, 1);
}

#[test]
fn what_is_fetched_for_a_call_that_is_given_up_is_stopped() {
    let mut alone = Alone::open(|_| {});
    alone.accept(3, 500, None);
    alone.actions();
    alone.sent();
    alone.handle(Event::Abandon { call: 6 });
    assert!(alone.state.is_waiting(3) && alone.actions().is_empty());
    alone.handle(Event::Abandon { call: 7 });
    let release = MessageKind::Ats { transfer: 3, outcome: AtsStatus::Refused };
    assert_eq!(alone.sent(), [Out::Message(release)]);
    let actions = alone.actions();
    assert!(matches!(actions[..], [Action::Withhold { reason: Withheld::GivenUp, .. }]));
}

#[test]
fn a_transfer_for_which_there_is_no_memory_is_refused_once() {
    let mut alone = Alone::open(|_| {});
    alone.accept(3, 500, None);
    alone.actions();
    alone.sent();
    for count in [1, 0] {
        let why = Withheld::NoMemory("there is none".into());
        alone.handle(Event::NoMemory { transfer: 3, why });
        assert_eq!((alone.sent().len(), alone.actions().len()), (count, count));
    }
}
