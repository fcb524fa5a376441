//! The time and the effect of each deadline.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const UNREAD_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The revoked transfers that are remembered.
const REVOKED_MAX: u64 = 64;
const HALT_TIMEOUT: Duration = Duration::from_millis(200);

/// A connection of which a frame waits for credit.
fn without_credit() -> Alone {
    let mut alone = Alone::open(|_| {});
    (0..5).for_each(|_| alone.send_frame());
    assert_eq!(alone.sent().len(), 4);
    alone.complete_all();
    alone
}

#[test]
fn a_credit_stall_is_logged_once_then_ends_the_connection() {
    let mut alone = without_credit();
    assert_eq!(alone.left(), Some(5 * SECOND));
    alone.time_out();
    assert!(matches!(alone.actions()[..], [Action::LogStall(_)]));
    assert_eq!(alone.left(), Some(15 * SECOND), "20 s since it began");
    alone.time_out();
    let text = "the peer granted no credit within 20s (rdma.release_timeout)";
    assert_eq!(alone.end(), Some(CloseReason::Failed(text.into())));
}

#[test]
fn a_peer_whose_grant_may_lie_unread_is_judged_later() {
    let mut alone = without_credit();
    alone.time_out();
    alone.time_out_with(true, Duration::ZERO);
    assert_eq!((alone.end(), alone.left()), (None, Some(UNREAD_LOOK_INTERVAL)));
    alone.time_out_with(false, 5 * SECOND);
    assert_eq!((alone.end(), alone.left()), (None, Some(5 * SECOND)), "this side stood still");
    alone.time_out_with(false, 5 * SECOND - Duration::from_nanos(1));
    assert!(alone.end().is_some());
}

#[test]
fn each_wait_for_credit_has_its_own_time() {
    let mut alone = without_credit();
    pass(SECOND);
    assert_eq!(alone.left(), Some(4 * SECOND));
    alone.grant(1);
    assert_eq!(alone.sent(), [Out::Message(MessageKind::Frame)]);
    pass(SECOND);
    alone.send_frame();
    alone.sent();
    alone.time_out();
    assert!(alone.actions().is_empty(), "this one has lasted for 3 s");
    assert_eq!(alone.left(), Some(2 * SECOND));
    alone.grant(1);
    alone.sent();
    alone.time_out();
    assert_eq!((alone.actions().len(), alone.left()), (0, None), "nothing waits");
}

#[test]
fn a_wait_that_follows_one_that_was_logged_is_logged_as_early() {
    let mut alone = without_credit();
    alone.time_out();
    assert!(matches!(alone.actions()[..], [Action::LogStall(_)]));
    alone.grant(1);
    alone.sent();
    pass(SECOND);
    alone.send_frame();
    alone.sent();
    assert_eq!(alone.left(), Some(5 * SECOND));
    alone.time_out();
    assert!(matches!(alone.actions()[..], [Action::LogStall(_)]));
    assert_eq!(alone.left(), Some(15 * SECOND));
}

#[test]
fn a_late_credit_stall_is_logged_and_not_due_at_once() {
    let mut alone = without_credit();
    assert_eq!(alone.left(), Some(5 * SECOND));
    pass(25 * SECOND);
    alone.handle(Event::Timeout(Look { now: now(), has_unread: true, late_by: 20 * SECOND }));
    assert!(matches!(alone.actions()[..], [Action::LogStall(_)]));
    assert_eq!((alone.end(), alone.left()), (None, Some(UNREAD_LOOK_INTERVAL)));
}

#[test]
fn a_read_that_is_not_answered_in_time_ends_the_connection() {
    let mut alone = Alone::open(|_| {});
    alone.accept(3, 1500, None);
    alone.give_memory();
    assert_eq!(alone.sent()[..2], [Out::Read { len: 1000 }, Out::Read { len: 500 }]);
    pass(4 * SECOND);
    assert_eq!(alone.left(), Some(6 * SECOND), "10 s since it was posted");
    while !matches!(alone.posted.front(), Some(Transmit::Read(_))) {
        alone.complete();
    }
    alone.complete();
    alone.time_out();
    assert_eq!((alone.end(), alone.left()), (None, Some(4 * SECOND)), "10 s since the first's");
    alone.time_out_with(true, Duration::ZERO);
    assert_eq!((alone.end(), alone.left()), (None, Some(UNREAD_LOOK_INTERVAL)));
    alone.time_out();
    let text = "the peer did not answer a READ within 10s (rdma.read_timeout)";
    assert_eq!(alone.end(), Some(CloseReason::Failed(text.into())));
}

#[test]
fn an_offer_that_is_not_released_in_time_ends_the_connection() {
    let mut alone = Alone::open(|_| {});
    alone.send_large(1);
    alone.sent();
    assert_eq!(alone.left(), Some(20 * SECOND));
    alone.time_out_with(true, Duration::ZERO);
    assert_eq!((alone.end(), alone.left()), (None, Some(UNREAD_LOOK_INTERVAL)));
    alone.time_out();
    let text = "the peer did not release an offer within 20s (rdma.release_timeout)";
    assert_eq!(alone.end(), Some(CloseReason::Failed(text.into())));
    assert_eq!(alone.cancellations.snapshot().overdue, 0);
}

#[test]
fn without_windows_an_unreleased_cancel_ends_the_connection() {
    let mut alone = Alone::open(|_| {});
    alone.send_large(1);
    alone.sent();
    pass(SECOND);
    alone.handle(Event::Abandon { call: 1 });
    assert_eq!(alone.left(), Some(2 * SECOND));
    alone.time_out();
    let text = "the peer did not release a cancelled offer within 2s \
                 (RdmaConfig::cancel_timeout)";
    assert_eq!(alone.end(), Some(CloseReason::Failed(text.into())));
    assert_eq!(alone.cancellations.snapshot().overdue, 1);
}

#[test]
fn memory_of_a_withdrawn_key_is_free_once_the_key_is_dead() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    let key = life::offer_by_window(&mut alone);
    alone.complete_all();
    let transfer = alone.state.offered.overdue(TIMEOUTS.acks(), now() + 60 * SECOND);
    assert_eq!(transfer, [0_u32; 0], "it was not taken back");
    alone.handle(Event::Abandon { call: 1 });
    let transfer = alone.state.offered.overdue(TIMEOUTS.acks(), now() + 60 * SECOND)[0];
    alone.time_out();
    let actions = alone.actions();
    let [Action::Revoke(binding)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(binding.key, key);
    assert_eq!(alone.state.memory_windows.exposed_count(), 1);
    alone.handle(Event::Revoked(key));
    assert!(matches!(alone.actions()[..], [Action::Free(_)]));
    let counts = alone.cancellations.snapshot();
    assert_eq!((alone.end(), counts.revoked, counts.overdue), (None, 1, 0));
    // The release that comes late is that of nothing, once.
    let late = MessageKind::Ats { transfer, outcome: AtsStatus::Stopped };
    alone.sent();
    alone.say(late, &[]);
    assert!(alone.end().is_none());
    alone.sent();
    alone.say(late, &[]);
    assert!(alone.has_violation());
}

#[test]
fn revoked_keys_per_peer_are_bounded() {
    let mut alone = Alone::open(|rules| rules.memory_windows_max = 1);
    for count in 1..=REVOKED_MAX + 1 {
        life::offer_by_window(&mut alone);
        alone.complete_all();
        alone.handle(Event::Abandon { call: 1 });
        alone.sent();
        alone.time_out();
        assert_eq!(alone.end().is_some(), count > REVOKED_MAX, "{count}");
        alone.actions();
        alone.grant(2);
        alone.sent();
        alone.complete_all();
    }
    assert_eq!(alone.cancellations.snapshot().revoked, REVOKED_MAX);
}

#[test]
fn a_transfer_without_memory_in_time_is_refused() {
    let late = |deadline: Option<Duration>, expected: Duration| {
        let mut alone = Alone::open(|_| {});
        alone.accept(3, 500, deadline);
        assert_eq!(alone.left(), Some(expected));
        alone.sent();
        assert!(matches!(alone.actions()[..], [Action::TakeMemory]));
        alone.time_out();
        let release = MessageKind::Ats { transfer: 3, outcome: AtsStatus::Refused };
        assert_eq!(alone.sent()[..1], [Out::Message(release)]);
        let mut actions = alone.actions();
        let Some(Action::Withhold { reason, .. }) = actions.pop() else { panic!("{actions:?}") };
        assert_eq!((alone.left(), alone.cancellations.snapshot().pulls_stopped), (None, 1));
        reason
    };
    assert!(matches!(late(None, 10 * SECOND), Withheld::NoMemory(_)), "half of the release's time");
    assert!(matches!(late(Some(60 * SECOND), 10 * SECOND), Withheld::NoMemory(_)));
    assert!(matches!(late(Some(SECOND), SECOND), Withheld::Expired));
}

#[test]
fn a_close_has_a_bound() {
    let mut alone = without_credit();
    alone.handle(Event::Close);
    assert_eq!(alone.left(), Some(5 * SECOND));
    alone.handle(Event::Close);
    alone.time_out();
    assert_eq!(alone.end(), Some(CloseReason::Local));
}

#[test]
fn a_halting_connection_drops_receives_then_queue_pairs() {
    for (close, last_receive) in [(5 * SECOND, SECOND), (SECOND / 2, SECOND / 2)] {
        let mut alone = Alone::open(|rules| rules.timeouts.close = close);
        alone.send_large(1);
        alone.sent();
        alone.send_large(2);
        alone.handle(Event::Fail(CloseReason::Peer));
        alone.handle(Event::Fail(CloseReason::Local));
        assert_eq!(alone.end(), Some(CloseReason::Peer), "the first reason counts");
        assert!(
            matches!(alone.actions()[..], [Action::Halt, Action::Free(_)]),
            "what is offered stays"
        );
        assert_eq!((alone.sent(), alone.left()), (vec![], Some(HALT_TIMEOUT)));
        alone.handle(Event::Halted);
        assert_eq!(alone.left(), Some(last_receive));
        alone.time_out();
        if close > last_receive {
            assert!(matches!(alone.actions()[..], [Action::GiveUpLastReceives]));
            assert_eq!(alone.left(), Some(close - last_receive));
            alone.time_out();
        }
        assert!(matches!(alone.actions()[..], [.., Action::Destroy]));
        assert_eq!(alone.left(), None);
    }
}

#[test]
fn the_handler_is_told_of_an_end_that_the_device_delays() {
    let mut alone = Alone::open(|_| {});
    alone.handle(Event::Fail(CloseReason::Peer));
    assert!(matches!(alone.actions()[..], [Action::Halt]));
    assert_eq!(alone.left(), Some(HALT_TIMEOUT));
    alone.time_out();
    assert!(matches!(alone.actions()[..], [Action::TellEnd]));
    assert_eq!(alone.left(), None, "nothing is destroyed before it is halted");
    alone.handle(Event::Halted);
    assert_eq!(alone.left(), Some(SECOND));
}

#[test]
fn a_post_that_was_refused_is_tried_again_soon() {
    let mut alone = Alone::open(|_| {});
    alone.handle(Event::PostRefused);
    assert_eq!(alone.left(), Some(Duration::from_millis(1)));
    alone.time_out();
    assert_eq!((alone.end(), alone.left()), (None, None));
}
