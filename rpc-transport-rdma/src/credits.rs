//! Credits: who may still send, so that no message ever finds the peer's receive queue empty.
//!
//! Every message takes one receive slot of its receiver, whatever it is. A receiver promises a
//! *window* of slots to each connection, and besides it a *reserve* that only pure grants may use.
//! It says so by a cumulative count, the *grant*: how many messages it may be sent in all. Grants
//! ride on every message; when none is due, a pure one is sent once half the window is used up.
//! A count is not a position: a grant that is late or repeated changes nothing.
//!
//! Why the reserve never runs dry: a side sends a pure grant only after half a window of messages
//! came in, each of which was sent under an earlier grant; before it sends the third after that,
//! the peer has had to see the first, and whatever the peer sent since carried a fresh grant back.
//!
//! Pure: nothing is sent here, and no memory is named.

use rpc_core::wire::ProtocolError;

/// The slots besides the window that pure grants may use: two in flight, as argued above, and as
/// many again, because a probe and its answer use them before the first grant.
pub(crate) const RESERVE: u32 = 4;

/// The smallest window that is worth a connection: with less, every message waits for a grant.
pub(crate) const WINDOW_MIN: u32 = 4;

/// The credit account of one connection, both directions.
#[derive(Debug)]
pub(crate) struct Credits {
    /// How many messages were sent.
    sent: u32,
    /// How many the peer allows in all.
    granted: u32,
    /// How many messages came in.
    received: u32,
    /// How many had come in when the last grant was given away.
    announced: u32,
    /// How many messages the peer may have on their way.
    window: u32,
}

impl Credits {
    /// An account in which we promise the peer `window` slots and it promised us `granted`.
    pub(crate) fn new(window: u32, granted: u32) -> Self {
        Self { sent: 0, granted, received: 0, announced: 0, window }
    }

    /// Counts a message to be sent; false when the peer has no slot for it.
    #[must_use]
    pub(crate) fn try_take(&mut self) -> bool {
        self.try_take_within(0)
    }

    /// Counts a pure grant, a probe or its answer, which may use the reserve.
    #[must_use]
    pub(crate) fn try_take_reserved(&mut self) -> bool {
        self.try_take_within(RESERVE)
    }

    /// Takes a grant that came with a message.
    ///
    /// # Errors
    ///
    /// When the peer takes back what it granted, or grants more than it could mean.
    pub(crate) fn handle_grant(&mut self, grant: u32) -> Result<(), ProtocolError> {
        let more = grant.wrapping_sub(self.granted);
        // The path keeps order, so that no grant is overtaken and any step back is wrong.
        if more > u32::from(u16::MAX) {
            return Err(ProtocolError::Invalid { what: "credit grant", value: grant.into() });
        }
        self.granted = grant;
        Ok(())
    }

    /// Counts a message that came in.
    ///
    /// # Errors
    ///
    /// When the peer sent it without credit.
    pub(crate) fn handle_message(&mut self) -> Result<(), ProtocolError> {
        self.received = self.received.wrapping_add(1);
        let unannounced = self.received.wrapping_sub(self.announced);
        if unannounced > self.window + RESERVE {
            let value = unannounced.into();
            return Err(ProtocolError::Invalid { what: "messages sent without credit", value });
        }
        Ok(())
    }

    /// The grant to send along with a message that goes out now.
    #[must_use]
    pub(crate) fn announce(&mut self) -> u32 {
        self.announced = self.received;
        self.received.wrapping_add(self.window)
    }

    /// Whether a pure grant is due because no message took one along.
    #[must_use]
    pub(crate) fn is_grant_due(&self) -> bool {
        self.received.wrapping_sub(self.announced) >= self.window.div_ceil(2)
    }

    fn try_take_within(&mut self, reserve: u32) -> bool {
        let left = self.granted.wrapping_add(reserve).wrapping_sub(self.sent);
        let may = left.cast_signed() > 0;
        self.sent = self.sent.wrapping_add(u32::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    impl Credits {
        /// How many messages may be sent now.
        fn available(&self) -> u32 {
            // Negative while the reserve is in use.
            self.granted.wrapping_sub(self.sent).cast_signed().max(0).cast_unsigned()
        }
    }

    #[test]
    fn a_window_is_used_up_and_renewed() {
        let mut credits = Credits::new(4, 2);
        assert!(credits.try_take() && credits.try_take() && !credits.try_take());
        credits.handle_grant(3).unwrap();
        assert_eq!(credits.available(), 1);
        assert!(credits.try_take() && !credits.try_take());
    }

    #[test]
    fn counts_wrap() {
        let mut credits = Credits::new(4, 0);
        (credits.sent, credits.granted) = (u32::MAX, u32::MAX);
        assert!(!credits.try_take());
        credits.handle_grant(2).unwrap();
        assert_eq!(credits.available(), 3);
        assert!(credits.try_take());
        assert_eq!(credits.sent, 0);
    }

    #[test]
    fn a_grant_that_goes_back_and_a_message_without_credit_are_violations() {
        let mut credits = Credits::new(4, 10);
        assert!(credits.handle_grant(9).is_err());
        for _ in 0..4 + RESERVE {
            credits.handle_message().unwrap();
        }
        assert!(credits.handle_message().is_err());
    }

    /// Two ends, and what is on its way to each: the grant that a message carries.
    struct Pair {
        ends: [Credits; 2],
        on_the_way: [VecDeque<u32>; 2],
        window: u32,
    }

    impl Pair {
        fn send(&mut self, from: usize, is_pure: bool) -> bool {
            let credits = &mut self.ends[from];
            let may = if is_pure { credits.try_take_reserved() } else { credits.try_take() };
            if may {
                let grant = credits.announce();
                self.on_the_way[1 - from].push_back(grant);
                // The receive queue has a slot for each of them.
                let slots = (self.window + RESERVE) as usize;
                assert!(self.on_the_way[1 - from].len() <= slots);
            }
            may
        }

        fn receive(&mut self, at: usize) {
            let Some(grant) = self.on_the_way[at].pop_front() else { return };
            self.ends[at].handle_message().unwrap();
            self.ends[at].handle_grant(grant).unwrap();
            if self.ends[at].is_grant_due() {
                assert!(self.send(at, true), "a grant that is due can be sent");
            }
        }
    }

    proptest! {
        #[test]
        fn slots_are_never_overrun_and_nobody_waits_for_ever(
            window in WINDOW_MIN..40,
            steps in prop::collection::vec(0u8..4, 0..600),
        ) {
            let ends = [Credits::new(window, window), Credits::new(window, window)];
            let mut pair = Pair { ends, on_the_way: Default::default(), window };
            for step in steps {
                match step {
                    0 | 1 => { let _ = pair.send(step.into(), false); }
                    _ => pair.receive(usize::from(step) - 2),
                }
            }
            // Once everything has arrived, both may send again.
            while pair.on_the_way.iter().any(|queue| !queue.is_empty()) {
                pair.receive(0);
                pair.receive(1);
            }
            prop_assert!(pair.ends.iter().all(|end| end.available() > 0));
        }
    }
}
