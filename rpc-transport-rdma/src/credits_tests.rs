//! Two ends of one path and what is on its way between them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::message::MessageKind;

impl Credits {
    /// How many messages may be sent now.
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
fn a_grant_that_goes_back_and_a_message_without_credit_are_violations() {
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
    assert!(ours.recall());
    assert!(!ours.recall(), "once");
    let returned = peers.handle_recall(WINDOW_MIN).unwrap();
    assert!(peers.try_take(), "the message that says so");
    assert_eq!((returned, peers.available()), (30, 1));
    assert_eq!(ours.handle_return(returned), Ok(30));
    ours.handle_message().unwrap();
    assert_eq!((ours.outstanding(), ours.claim(), ours.is_grant_due()), (1, 1, false));
    assert_eq!(peers.handle_recall(WINDOW_MIN), None, "nothing more");
    assert!(!ours.recall());
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

/// Two ends, and what is on its way to each.
struct Pair {
    ends: [Credits; 2],
    on_the_way: [VecDeque<(MessageKind, Grant)>; 2],
    /// Whether an end has a return to send.
    returns: [Option<u32>; 2],
    window_max: u32,
}

impl Pair {
    fn new(window_max: u32) -> Self {
        let ends = [Credits::new(WINDOW_MIN, WINDOW_MIN), Credits::new(WINDOW_MIN, WINDOW_MIN)];
        Self { ends, on_the_way: Default::default(), returns: [None; 2], window_max }
    }

    fn send(&mut self, from: usize, kind: MessageKind) -> bool {
        let credits = &mut self.ends[from];
        let may = if kind.is_reserved() { credits.try_take_reserved() } else { credits.try_take() };
        if may {
            let grant = credits.announce(1);
            self.on_the_way[1 - from].push_back((kind, grant));
            // The receive queue has a slot for each of them.
            let slots = (self.window_max + RESERVE) as usize;
            assert!(self.on_the_way[1 - from].len() <= slots);
        }
        may
    }

    fn receive(&mut self, at: usize) {
        let Some((kind, grant)) = self.on_the_way[at].pop_front() else { return };
        let end = &mut self.ends[at];
        end.handle_grant(grant).unwrap();
        match kind {
            kind if kind.is_reserved() => end.handle_reserved().unwrap(),
            MessageKind::Recall { keep } => {
                end.handle_message().unwrap();
                self.returns[at] = end.handle_recall(keep).or(self.returns[at]);
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
        self.settle(at);
    }

    /// Sends what is due, as a path does whenever something has changed.
    fn settle(&mut self, at: usize) {
        if let Some(returned) = self.returns[at]
            && self.send(at, MessageKind::Return { returned })
        {
            self.returns[at] = None;
        }
        if self.ends[at].is_grant_due() {
            self.send(at, MessageKind::Grant);
        }
    }

    fn step(&mut self, step: u8, at: usize) {
        match step {
            0..=3 => drop(self.send(at, MessageKind::Frame)),
            4..=8 => self.receive(at),
            9 => {
                if self.ends[at].recall() {
                    // A path keeps it until it can be sent.
                    self.send(at, MessageKind::Recall { keep: WINDOW_MIN });
                }
            }
            _ => {
                let window = self.ends[at].window();
                self.ends[at].set_window((window / 2).max(WINDOW_MIN));
            }
        }
    }

    fn settle_all(&mut self) -> usize {
        let mut count = 0;
        while self.on_the_way.iter().any(|queue| !queue.is_empty()) {
            self.receive(0);
            self.receive(1);
            count += 1;
        }
        count
    }
}

proptest! {
    #[test]
    fn slots_are_never_overrun_and_nobody_waits_for_ever(
        window_max in WINDOW_MIN..40,
        steps in prop::collection::vec((0u8..11, 0usize..2), 0..600),
    ) {
        let mut pair = Pair::new(window_max);
        for (step, at) in steps {
            pair.step(step, at);
            // Nobody spends what it was not given.
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
