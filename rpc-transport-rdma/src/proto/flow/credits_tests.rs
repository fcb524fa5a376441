//! Two ends of one path and what is on its way between them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::proto::wire::MessageKind;

impl Credits {
    /// Returns the number of messages that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        self.unspent()
    }
}

fn grant(count: u32) -> Grant {
    Grant { count, control_seen: 0, wants_more: false }
}

#[test]
fn a_window_is_used_up_and_renewed() {
    let mut credits = Credits::new(4, 2);
    assert!(credits.try_take() && credits.try_take() && !credits.try_take());
    credits.handle_grant(grant(3)).unwrap();
    assert_eq!(credits.available(), 1);
    assert!(credits.try_take() && !credits.try_take());
}

#[test]
fn counts_wrap() {
    let mut credits = Credits::new(4, 0);
    (credits.sending.spent, credits.sending.granted) = (u32::MAX, u32::MAX);
    assert!(!credits.try_take());
    credits.handle_grant(grant(2)).unwrap();
    assert_eq!(credits.available(), 3);
    assert!(credits.try_take());
    assert_eq!(credits.sending.spent, 0);
    (credits.receiving.spent, credits.receiving.promised) = (u32::MAX, 3);
    credits.handle_message().unwrap();
    assert_eq!((credits.outstanding(), credits.announce(0).count), (3, 4));
}

#[test]
fn shrinking_grants_and_uncredited_messages_are_violations() {
    let mut credits = Credits::new(4, 10);
    assert!(credits.handle_grant(grant(9)).is_err());
    for _ in 0..4 {
        credits.handle_message().unwrap();
    }
    assert!(credits.handle_message().is_err());
    for _ in 0..RESERVE {
        credits.handle_reserved().unwrap();
    }
    assert!(credits.handle_reserved().is_err());
}

#[test]
fn having_seen_what_was_never_sent_is_a_violation() {
    let mut credits = Credits::new(4, 10);
    assert!(credits.handle_grant(Grant { control_seen: 1, ..grant(10) }).is_err());
    assert!(credits.try_take_reserved());
    credits.handle_grant(Grant { control_seen: 1, ..grant(10) }).unwrap();
    assert!(credits.handle_grant(Grant { control_seen: 0, ..grant(10) }).is_err(), "taken back");
}

#[test]
fn a_smaller_window_takes_nothing_back_and_is_not_renewed() {
    let mut credits = Credits::new(8, 0);
    credits.set_window(2);
    assert_eq!((credits.outstanding(), credits.claim()), (8, 8));
    for left in (2..8).rev() {
        credits.handle_message().unwrap();
        assert_eq!((credits.announce(0).count, credits.claim()), (8, left));
        assert!(!credits.is_grant_due());
    }
    credits.handle_message().unwrap();
    assert!(credits.is_grant_due());
    assert_eq!((credits.announce(0).count, credits.claim()), (9, 2));
}

#[test]
fn a_recalled_peer_returns_what_it_does_not_use() {
    let (mut ours, mut peers) = (Credits::new(32, 1), Credits::new(1, 32));
    ours.reclaim();
    assert_eq!(ours.take_due(), Some(MessageKind::Reclaim { keep: WINDOW_MIN }));
    ours.reclaim();
    assert_eq!(ours.take_due(), None, "once");
    peers.handle_reclaim(WINDOW_MIN);
    assert!(peers.try_take(), "what goes out before the answer keeps its credit");
    ours.handle_message().unwrap();
    let returned = 29;
    assert_eq!(peers.take_due(), Some(MessageKind::Return { returned }));
    assert_eq!(peers.available(), 1);
    assert_eq!(ours.handle_return(returned), Ok(29));
    ours.handle_message().unwrap();
    assert_eq!((ours.outstanding(), ours.claim(), ours.is_due()), (1, 1, false));
    peers.handle_reclaim(WINDOW_MIN);
    assert!(peers.is_due());
    assert_eq!((peers.take_due(), peers.is_due()), (None, false), "nothing more");
    ours.reclaim();
    assert!(!ours.is_due());
}

#[test]
fn a_recall_that_a_message_overtakes_is_not_sent() {
    let mut ours = Credits::new(32, 0);
    ours.reclaim();
    assert_eq!((ours.is_due(), ours.take_due()), (true, None), "no credit");
    ours.handle_message().unwrap();
    ours.handle_grant(grant(1)).unwrap();
    assert_eq!((ours.is_due(), ours.take_due()), (false, None), "the peer is not idle");
}

#[test]
fn returning_what_was_never_granted_is_a_violation() {
    let mut ours = Credits::new(4, 1);
    assert!(ours.handle_return(5).is_err());
    assert_eq!(ours.handle_return(3), Ok(3));
    assert!(ours.handle_return(2).is_err(), "taken back");
    ours.handle_message().unwrap();
    assert!(ours.handle_message().is_err());
}

#[test]
fn only_a_sender_that_has_to_stop_wants_more() {
    let mut credits = Credits::new(4, 2);
    assert!(credits.try_take());
    assert!(!credits.announce(9).wants_more, "one is left");
    assert!(credits.try_take());
    assert!(!credits.announce(0).wants_more, "nothing waits");
    assert!(credits.announce(1).wants_more);
}

#[test]
fn a_grant_raises_credit_by_what_a_window_can_hold_and_no_more() {
    let mut credits = Credits::new(4, 10);
    credits.handle_grant(grant(10 + 0xffff)).unwrap();
    assert_eq!(credits.available(), 10 + 0xffff);
    let beyond = grant(10 + 0xffff + 0x1_0000);
    assert!(credits.handle_grant(beyond).is_err());
}

#[test]
fn a_lone_grant_requests_a_larger_window() {
    for (window, messages, is_wanted) in [(1, 1, true), (2, 1, true), (3, 2, false), (4, 2, false)]
    {
        let mut credits = Credits::new(window, 0);
        assert_eq!((credits.take_due(), credits.take_wanted()), (None, false));
        for _ in 0..messages {
            assert_eq!(credits.take_due(), None);
            credits.handle_message().unwrap();
        }
        assert_eq!(credits.take_due(), Some(MessageKind::Grant));
        assert_eq!(credits.take_wanted(), is_wanted, "a window of {window}");
        assert!(!credits.take_wanted(), "asked once");
    }
}

#[test]
fn a_peers_credit_stop_is_remembered_until_read() {
    let mut credits = Credits::new(4, 0);
    credits.handle_grant(Grant { wants_more: true, ..grant(1) }).unwrap();
    credits.handle_grant(grant(2)).unwrap();
    assert!(credits.take_wanted() && !credits.take_wanted());
}

#[test]
fn messages_and_returned_credits_are_counted_as_received() {
    let mut credits = Credits::new(8, 0);
    for _ in 0..3 {
        credits.handle_message().unwrap();
    }
    assert_eq!(credits.handle_return(4), Ok(4));
    assert_eq!((credits.received_count(), credits.outstanding()), (7, 1));
}

/// Two ends, and what is on its way to each.
struct Pair {
    ends: [Credits; 2],
    on_the_way: [VecDeque<(MessageKind, Grant)>; 2],
    window_max: u32,
}

impl Pair {
    fn new(window_max: u32) -> Self {
        let ends = [Credits::new(WINDOW_MIN, WINDOW_MIN), Credits::new(WINDOW_MIN, WINDOW_MIN)];
        Self { ends, on_the_way: Default::default(), window_max }
    }

    fn send_frame(&mut self, from: usize) {
        if self.ends[from].try_take() {
            self.commit(from, MessageKind::Frame);
        }
    }

    fn commit(&mut self, from: usize, kind: MessageKind) {
        let grant = self.ends[from].announce(1);
        self.on_the_way[1 - from].push_back((kind, grant));
        // The receive queue has a slot for each of them.
        let slots = (self.window_max + RESERVE) as usize;
        assert!(self.on_the_way[1 - from].len() <= slots);
    }

    fn receive(&mut self, at: usize) {
        let Some((kind, grant)) = self.on_the_way[at].pop_front() else { return };
        let end = &mut self.ends[at];
        end.handle_grant(grant).unwrap();
        match kind {
            kind if kind.is_reserved() => end.handle_reserved().unwrap(),
            MessageKind::Reclaim { keep } => {
                end.handle_message().unwrap();
                end.handle_reclaim(keep);
            }
            MessageKind::Return { returned } => {
                end.handle_return(returned).unwrap();
                end.handle_message().unwrap();
            }
            _ => end.handle_message().unwrap(),
        }
        if self.ends[at].take_wanted() {
            let window = self.ends[at].window();
            self.ends[at].set_window((window * 2).min(self.window_max));
        }
    }

    /// Sends what is due, as a path does when the worker has handled what came in.
    fn settle(&mut self, at: usize) {
        while let Some(kind) = self.ends[at].take_due() {
            self.commit(at, kind);
        }
    }

    fn step(&mut self, step: u8, at: usize) {
        match step {
            0..=3 => self.send_frame(at),
            4..=8 => self.receive(at),
            9 => self.ends[at].reclaim(),
            10 | 11 => self.settle(at),
            _ => {
                let window = self.ends[at].window();
                self.ends[at].set_window((window / 2).max(WINDOW_MIN));
            }
        }
    }

    fn settle_all(&mut self) -> usize {
        let mut count = 0;
        (0..2).for_each(|at| self.settle(at));
        while self.on_the_way.iter().any(|queue| !queue.is_empty()) {
            for at in 0..2 {
                self.receive(at);
                self.settle(at);
            }
            count += 1;
        }
        count
    }
}

proptest! {
    #[test]
    fn slots_are_never_overrun_and_no_end_waits_for_ever(
        window_max in WINDOW_MIN..40,
        steps in prop::collection::vec((0u8..13, 0usize..2), 0..600),
    ) {
        let mut pair = Pair::new(window_max);
        for (step, at) in steps {
            pair.step(step, at);
            // No end spends a credit that it was not granted.
            for at in 0..2 {
                let spent = pair.ends[1 - at].sending.spent;
                prop_assert!(spent.wrapping_sub(pair.ends[at].receiving.promised) as i32 <= 0);
            }
        }
        let rounds = pair.settle_all();
        prop_assert!(rounds < 200, "two idle ends keep each other awake");
        // Once everything has arrived, both may send again.
        prop_assert!(pair.ends.iter().all(|end| end.available() > 0));
        // And what an end may send is what its peer expects.
        for at in 0..2 {
            prop_assert_eq!(pair.ends[1 - at].available(), pair.ends[at].outstanding());
        }
    }
}
