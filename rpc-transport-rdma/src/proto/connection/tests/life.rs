//! From the first probe to the end.

use super::*;

#[test]
fn a_probe_is_answered_and_an_answer_proves_the_path_once() {
    let mut alone = Alone::new();
    assert!(!alone.state.is_probed());
    alone.handle(Event::Probe);
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Probe)]);
    assert_eq!(bytes_of(&alone.posted[0]).len(), MESSAGE_HEADER_LEN);
    alone.say(MessageKind::ProbeAnswer, &[]);
    assert!(matches!(alone.actions()[..], [Action::Proven]));
    alone.say(MessageKind::ProbeAnswer, &[]);
    assert!(alone.actions().is_empty());
    assert!(!alone.state.is_probed());
    let mut alone = Alone::new();
    alone.say(MessageKind::Probe, &[]);
    assert!(alone.state.is_probed());
    assert_eq!(alone.sent(), [Out::Message(MessageKind::ProbeAnswer)]);
}

#[test]
fn probes_of_a_bound_path_carry_the_proofs_of_both_sides() {
    let binding = || PathBinding::new([1; PROOF_LEN], [2; PROOF_LEN]);
    let mut alone = Alone::new();
    assert!(alone.state.bind(binding()));
    alone.handle(Event::Probe);
    alone.sent();
    assert_eq!(bytes_of(&alone.posted[0])[MESSAGE_HEADER_LEN..], [1; PROOF_LEN]);
    alone.say(MessageKind::Probe, &[2; PROOF_LEN]);
    alone.say(MessageKind::ProbeAnswer, &[2; PROOF_LEN]);
    assert!(alone.end().is_none());
    assert_eq!(alone.sent(), [Out::Message(MessageKind::ProbeAnswer)]);
    alone.say(MessageKind::Grant, &[]);
    assert!(alone.end().is_none(), "other messages carry none");
    for kind in [MessageKind::Probe, MessageKind::ProbeAnswer] {
        for proof in [&[][..], &[1; PROOF_LEN]] {
            let mut alone = Alone::new();
            assert!(alone.state.bind(binding()));
            alone.handle(Event::Probe);
            alone.sent();
            alone.say(kind, proof);
            assert!(alone.has_violation(), "{kind:?} {proof:?}");
        }
    }
}

#[test]
fn a_path_cannot_be_bound_after_a_probe_without_a_proof() {
    for kind in [MessageKind::Probe, MessageKind::ProbeAnswer] {
        let mut alone = Alone::new();
        alone.say(kind, &[]);
        assert!(!alone.state.bind(PathBinding::new([1; PROOF_LEN], [2; PROOF_LEN])), "{kind:?}");
    }
}

#[test]
fn what_comes_before_the_open_is_kept_up_to_what_was_promised() {
    let mut alone = Alone::new();
    alone.say(MessageKind::Frame, &[1; HEADER_LEN]);
    assert_eq!(alone.deliveries(), 0);
    alone.handle(Event::Open);
    assert_eq!(alone.deliveries(), 1);
    alone.handle(Event::Open);
    assert_eq!((alone.deliveries(), alone.end()), (0, None));

    let mut alone = Alone::new();
    alone.say(MessageKind::Frame, &[1; HEADER_LEN]);
    assert!(alone.end().is_none());
    alone.say(MessageKind::Frame, &[1; HEADER_LEN]);
    assert!(alone.has_violation(), "one message was promised");
}

#[test]
fn stale_messages_up_to_the_old_promise_are_ignored() {
    let mut alone = Alone::open(|_| {});
    let grant = Grant { count: 99, control_seen: 99, wants_more: false };
    let header = MessageHeader { kind: MessageKind::Frame, epoch: OUR_EPOCH + 1, grant };
    for _ in 0..2 {
        alone.handle(Event::Message { bytes: &header.to_bytes(), taken_key: None });
        assert_eq!((alone.deliveries(), alone.end()), (0, None));
    }
    alone.handle(Event::Message { bytes: &header.to_bytes(), taken_key: None });
    assert!(alone.has_violation());
}

#[test]
fn a_peer_that_reclaims_without_granting_is_ended() {
    const CONTROL_MAX: usize = 16 << 10;
    const OUTGOING_MAX: usize = 256 << 10;
    let with = |control_len, outgoing_len| {
        let mut alone = Alone::open(|_| {});
        alone.state.control.extend(std::iter::repeat_n(MessageKind::ProbeAnswer, control_len));
        let frame = || Outgoing::Control([0; HEADER_LEN]);
        alone.state.outgoing.extend(std::iter::repeat_with(frame).take(outgoing_len));
        assert_eq!(alone.state.outgoing_len(), outgoing_len);
        alone.say(MessageKind::Grant, &[]);
        alone.has_violation()
    };
    assert!(!with(CONTROL_MAX, OUTGOING_MAX));
    assert!(with(CONTROL_MAX + 1, 0) && with(0, OUTGOING_MAX + 1));
    assert!(with(CONTROL_MAX + 2, 0) && with(0, OUTGOING_MAX + 2));
}

/// The state ends when `finish` has done what was left of what `begin` began.
fn check_close(
    what: &str,
    mut alone: Alone,
    begin: impl FnOnce(&mut Alone),
    finish: impl FnOnce(&mut Alone),
) {
    begin(&mut alone);
    alone.sent();
    alone.handle(Event::Close);
    assert!(!alone.state.is_open() && !alone.state.is_halting());
    alone.sent();
    assert!(alone.end().is_none(), "{what} is left");
    finish(&mut alone);
    alone.sent();
    alone.complete_all();
    alone.sent();
    assert_eq!(alone.end(), Some(CloseReason::Local), "{what} is done");
    let refused = alone.state.send(Outgoing::Control([0; HEADER_LEN]));
    assert!(refused.is_err());
}

#[test]
fn a_close_waits_for_all_that_was_taken() {
    let open = || Alone::open(|_| {});
    check_close("a message in flight", open(), Alone::send_frame, |_| {});
    let waits_for_credit = |alone: &mut Alone| (0..5).for_each(|_| alone.send_frame());
    check_close("a frame without credit", open(), waits_for_credit, |alone| {
        alone.complete_all();
        alone.sent();
        assert!(!alone.state.is_flushed());
        alone.grant(1);
    });
    let release = |alone: &mut Alone| {
        alone.complete_all();
        alone.sent();
        let transfer = first_transfer();
        assert!(!alone.state.is_flushed());
        alone.say(MessageKind::Ats { transfer, outcome: AtsStatus::Read }, &[]);
        assert!(alone.state.is_flushed());
    };
    check_close("an offer", open(), |alone| alone.send_large(1), release);
    let fetch = |alone: &mut Alone| alone.accept(3, 500, None);
    check_close("a transfer", open(), fetch, |alone| {
        alone.complete_all();
        alone.sent();
        assert!(alone.end().is_none());
        alone.give_memory();
        alone.sent();
        alone.complete_all();
    });
    let (refuse, grants) = (
        |alone: &mut Alone| {
            (0..4).for_each(|_| alone.send_frame());
            alone.sent();
            alone.handle(Event::Refuse { transfer: 3 });
        },
        |alone: &mut Alone| {
            alone.complete_all();
            alone.sent();
            assert!(alone.state.is_flushed() && alone.end().is_none());
            alone.grant(1);
        },
    );
    check_close("a release without credit", open(), refuse, grants);
}

/// The transfer of the first frame that a connection offers.
fn first_transfer() -> u32 {
    RndvSends::default().insert(0, (), None, now())
}

#[test]
fn a_close_waits_for_the_keys_that_are_being_killed() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    assert!(alone.state.uses_memory_windows());
    let key = offer_by_window(&mut alone);
    alone.complete_all();
    let transfer = first_transfer();
    alone.handle(Event::Close);
    // Released without the key, which is dead only when the device says so.
    alone.say(MessageKind::Ats { transfer, outcome: AtsStatus::Read }, &[]);
    assert!(alone.state.is_flushed() && alone.state.memory_windows.exposed_count() == 1);
    assert_eq!(alone.sent()[0], Out::Invalidate, "{key:?}");
    assert!(alone.end().is_none());
    alone.complete_all();
    alone.sent();
    assert_eq!(alone.end(), Some(CloseReason::Local));
}

/// Offers a frame through a window that is allocated for it, and returns the key.
pub(super) fn offer_by_window(alone: &mut Alone) -> RemoteKey {
    alone.send_large(1);
    assert_eq!(alone.sent(), [], "the offer waits for a window");
    assert!(matches!(alone.actions()[..], [Action::AllocateMemoryWindows { count: 1 }]));
    alone.handle(Event::MemoryWindow(Ok(Window(RemoteKey(1 << 16)))));
    assert!(matches!(alone.sent()[..], [Out::Message(MessageKind::Rts { .. })]));
    let Some(Transmit::Offer { binding: Some(Binding { key, .. }), .. }) = alone.posted.back()
    else {
        panic!("{:?}", alone.posted)
    };
    *key
}

#[test]
fn windows_are_requested_once_and_in_batches() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 2);
    (1..4).for_each(|call| alone.send_large(call));
    assert_eq!([alone.sent(), alone.sent()], [[], []]);
    assert!(matches!(alone.actions()[..], [Action::AllocateMemoryWindows { count: 1 }]));
    alone.handle(Event::MemoryWindow(Ok(Window(RemoteKey(1 << 16)))));
    assert!(matches!(alone.sent()[..], [Out::Message(MessageKind::Rts { .. })]));
    assert!(matches!(alone.actions()[..], [Action::AllocateMemoryWindows { count: 1 }]));
    alone.handle(Event::MemoryWindow(Err("none is left".into())));
    assert!(alone.end().is_none());
    alone.sent();
    assert!(alone.actions().is_empty(), "there are no more");
}

#[test]
fn a_window_is_used_again_when_its_key_is_dead() {
    for is_taken in [true, false] {
        let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
        let key = offer_by_window(&mut alone);
        alone.complete_all();
        alone.send_large(2);
        assert_eq!(alone.sent(), []);
        let release = MessageKind::Ats { transfer: first_transfer(), outcome: AtsStatus::Read };
        alone.say_with(release, &[], is_taken.then_some(key));
        if !is_taken {
            assert_eq!(alone.sent()[0], Out::Invalidate);
            alone.complete_all();
        }
        let is_offer = |out: &Out| matches!(out, Out::Message(MessageKind::Rts { .. }));
        assert!(alone.sent().iter().any(is_offer), "{is_taken}");
    }
}

#[test]
fn an_offer_that_waits_for_credit_keeps_no_window() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    (0..4).for_each(|_| alone.send_frame());
    alone.send_large(1);
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame); 4]);
    alone.handle(Event::MemoryWindow(Ok(Window(RemoteKey(1 << 16)))));
    assert_eq!(alone.sent(), []);
    alone.grant(2);
    assert!(matches!(alone.sent()[..], [Out::Message(MessageKind::Rts { .. }), ..]));
}

#[test]
fn a_connection_whose_only_window_cannot_be_allocated_ends() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    alone.send_large(1);
    alone.sent();
    alone.handle(Event::MemoryWindow(Err("none is left".into())));
    assert!(matches!(alone.end(), Some(CloseReason::Failed(_))));
    assert!(!Alone::new().state.uses_memory_windows());
}

#[test]
fn what_the_peer_may_go_on_to_read_is_leaked_and_counted() {
    let mut alone = Alone::open(|_| {});
    (1..4).for_each(|call| alone.send_large(call));
    alone.sent();
    assert_eq!((alone.state.leak_offered(), alone.activity.offers_leaked.value()), (3, 3));
    assert!(alone.state.offered.is_empty());

    for is_being_killed in [false, true] {
        let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
        offer_by_window(&mut alone);
        alone.complete_all();
        let transfer = first_transfer();
        alone.say(MessageKind::Ats { transfer, outcome: AtsStatus::Read }, &[]);
        if is_being_killed {
            assert_eq!(alone.sent()[0], Out::Invalidate);
        }
        alone.send_large(2);
        alone.handle(Event::Fail(CloseReason::Local));
        assert_eq!(alone.state.leak_offered(), 1, "its key is alive although it is released");
    }
}

#[test]
fn credits_are_reclaimed_of_an_open_connection_alone() {
    let reclaims = |alone: &mut Alone| {
        // The peer is granted more, and uses none of it.
        alone.ask_for_credit();
        alone.sent();
        alone.handle(Event::Reclaim);
        alone.sent().iter().any(|out| matches!(out, Out::Message(MessageKind::Reclaim { .. })))
    };
    assert!(reclaims(&mut Alone::open(|_| {})));
    assert!(!reclaims(&mut Alone::new()), "it is not open yet");
}
