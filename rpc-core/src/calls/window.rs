//! The window of one direction of a stream: how much may be on its way or wait to be read.
//!
//! A receiver says, by cumulative counts, how many messages and how many bytes it may be sent in
//! all; both count, since a million empty messages take room too. Bytes may be exceeded by the one
//! message that crosses the line, so that a message longer than the whole window can pass.
//! Counts are modulo 2^32; a window is far below half of that.

use crate::wire::ProtocolError;

/// The longest message of a stream: counts are compared by their distance, and with a window of at
/// most as much again no two that are compared are half of 2^32 apart.
pub const MESSAGE_LEN_MAX: u64 = 1 << 30;

/// The capacity of one direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// Messages.
    pub messages: u32,
    /// Bytes of messages.
    pub bytes: u32,
}

impl Window {
    /// Nothing.
    pub const NONE: Self = Self { messages: 0, bytes: 0 };

    /// The lesser of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { messages: self.messages.min(other.messages), bytes: self.bytes.min(other.bytes) }
    }

    /// Four times as much of each, and not more than `widest`: a round trip more for each step is
    /// what a stream pays for its small beginning.
    fn widened(self, widest: Self) -> Self {
        let messages = self.messages.saturating_mul(4);
        Self { messages, bytes: self.bytes.saturating_mul(4) }.min(widest)
    }

    /// A quarter of each, and not less than `first`.
    fn narrowed(self, first: Self) -> Self {
        Self {
            messages: (self.messages / 4).max(first.messages),
            bytes: (self.bytes / 4).max(first.bytes),
        }
    }
}

/// Cumulative counts of messages and bytes, modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Messages.
    pub messages: u32,
    /// Bytes.
    pub bytes: u32,
}

impl Counts {
    /// Both counts in one number, as a header carries them.
    #[must_use]
    pub fn to_wire(self) -> u64 {
        u64::from(self.messages) << 32 | u64::from(self.bytes)
    }

    /// The counts that a header carries.
    #[must_use]
    pub fn from_wire(value: u64) -> Self {
        let [messages, bytes] = [value >> 32, value & u64::from(u32::MAX)];
        // Both halves fit by construction.
        Self {
            messages: u32::try_from(messages).unwrap_or(u32::MAX),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        }
    }

    /// Counts a message of `len` bytes.
    pub(crate) fn add(&mut self, len: usize) {
        self.messages = self.messages.wrapping_add(1);
        // A length beyond 2^32 has wrapped as often as the sum would have.
        self.bytes = self.bytes.wrapping_add(u32::try_from(len & 0xffff_ffff).unwrap_or(0));
    }

    /// Both sums.
    fn sum(self, other: Self) -> Self {
        Self {
            messages: self.messages.wrapping_add(other.messages),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// The later of each.
    fn max(self, other: Self) -> Self {
        let later = |a: u32, b: u32| if left(a, b) > 0 { a } else { b };
        Self {
            messages: later(self.messages, other.messages),
            bytes: later(self.bytes, other.bytes),
        }
    }

    fn plus(self, window: Window) -> Self {
        Self {
            messages: self.messages.wrapping_add(window.messages),
            bytes: self.bytes.wrapping_add(window.bytes),
        }
    }
}

/// Returns the distance from a count to its limit. A negative distance is 0.
fn left(limit: u32, count: u32) -> u32 {
    // Windows and messages have at most 2^30 bytes, so that the two are less than 2^31 apart and
    // the sign of their difference says which one is ahead. A peer that grants more than that is
    // sent nothing.
    limit.wrapping_sub(count).cast_signed().max(0).cast_unsigned()
}

/// The sender's side.
#[derive(Debug)]
pub struct SendWindow {
    sent: Counts,
    granted: Counts,
}

impl SendWindow {
    /// A side that may send a whole window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self { sent: Counts::default(), granted: Counts::default().plus(window) }
    }

    /// Returns true if a message of any length may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        left(self.granted.messages, self.sent.messages) > 0
            && left(self.granted.bytes, self.sent.bytes) > 0
    }

    /// Returns the counts sent so far.
    #[must_use]
    pub fn sent(&self) -> Counts {
        self.sent
    }

    /// Counts a message that is sent.
    pub fn send(&mut self, len: usize) {
        self.sent.add(len);
    }

    /// Takes the receiver's word on how much it may be sent in all. One that comes late, because
    /// a later one overtook it, changes nothing.
    pub fn handle_grant(&mut self, granted: Counts) {
        let is_newer = |new: u32, old: u32| new.wrapping_sub(old).cast_signed() > 0;
        if is_newer(granted.messages, self.granted.messages) {
            self.granted.messages = granted.messages;
        }
        if is_newer(granted.bytes, self.granted.bytes) {
            self.granted.bytes = granted.bytes;
        }
    }
}

/// The receiver's side.
///
/// It may begin with a part of its widest window and grow, fourfold each time that a grant is due,
/// where its reader agrees: so a stream that has just begun, or is idle, binds little memory. Where
/// its reader is short of memory, it shrinks to where it began: what was granted stays granted, and
/// as much less is granted anew.
#[derive(Debug)]
pub struct ReceiveWindow {
    window: Window,
    first: Window,
    widest: Window,
    received: Counts,
    consumed: Counts,
    /// The count at which a grant was due last.
    announced: Counts,
    /// Cumulative counts that the sender may reach.
    granted: Counts,
}

/// The size of a window for its next grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// The wider one.
    Widen,
    /// The same.
    Keep,
    /// A quarter, or the first one.
    Narrow,
}

impl ReceiveWindow {
    /// Returns the counts received so far.
    #[must_use]
    pub fn received(&self) -> Counts {
        self.received
    }

    /// A side that grants `window`.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self::widening(window, window)
    }

    /// A side that grants `window` to begin with, and `widest` later.
    #[must_use]
    pub fn widening(window: Window, widest: Window) -> Self {
        let none = Counts::default();
        let granted = none.plus(window);
        let (received, consumed, announced) = (none, none, none);
        Self { window, first: window, widest, received, consumed, announced, granted }
    }

    /// Returns the current size of the window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the most that can wait to be read from now on, unless more is granted.
    #[must_use]
    pub fn bound(&self) -> Window {
        Window {
            messages: left(self.granted.messages, self.consumed.messages),
            bytes: left(self.granted.bytes, self.consumed.bytes),
        }
    }

    /// Returns true if a grant was due with the message that was read last.
    #[must_use]
    pub fn was_due(&self) -> bool {
        self.announced == self.consumed
    }

    /// Returns the messages and bytes to read until a grant is due, which either count makes it.
    #[must_use]
    pub fn until_due(&self) -> Window {
        let half = Counts {
            messages: self.window.messages.div_ceil(2),
            bytes: self.window.bytes.div_ceil(2),
        };
        let due = self.announced.sum(half);
        Window {
            messages: left(due.messages, self.consumed.messages),
            bytes: left(due.bytes, self.consumed.bytes),
        }
    }

    /// Returns the messages and bytes that have arrived and are not read.
    #[must_use]
    pub fn unread(&self) -> Window {
        Window {
            messages: self.received.messages.wrapping_sub(self.consumed.messages),
            bytes: self.received.bytes.wrapping_sub(self.consumed.bytes),
        }
    }

    /// Returns the messages and bytes that the peer may still send. Unless one of the two is 0,
    /// that includes a message of any length.
    #[must_use]
    pub fn left(&self) -> Window {
        Window {
            messages: left(self.granted.messages, self.received.messages),
            bytes: left(self.granted.bytes, self.received.bytes),
        }
    }

    /// Counts a message that came in.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the peer was not allowed to send it.
    pub fn receive(&mut self, len: usize) -> Result<(), ProtocolError> {
        let Window { messages, bytes } = self.left();
        if messages == 0 || bytes == 0 {
            let value = self.received.messages.into();
            return Err(ProtocolError::Invalid {
                what: "messages beyond a stream's window",
                value,
            });
        }
        self.received.add(len);
        Ok(())
    }

    /// Counts a message that was read, as [`ReceiveWindow::consume_all`].
    pub fn consume(&mut self, len: usize, resize: impl FnOnce(Window) -> Resize) -> Option<Counts> {
        let mut read = Counts::default();
        read.add(len);
        self.consume_all(read, resize)
    }

    /// Counts messages that were read, and gives the grant to send when half the window is free
    /// again: fewer grants than that would stall, more would cost a frame each. `resize` is given
    /// the wider window, which is the same where there is none. A narrower one gives no grant until
    /// the sender has used up what it may send beyond it.
    pub fn consume_all(
        &mut self,
        read: Counts,
        resize: impl FnOnce(Window) -> Resize,
    ) -> Option<Counts> {
        self.consumed = self.consumed.sum(read);
        let due = self.until_due();
        if due.messages > 0 && due.bytes > 0 {
            return None;
        }
        let wider = self.window.widened(self.widest);
        self.window = match resize(wider) {
            Resize::Widen => wider,
            Resize::Keep => self.window,
            Resize::Narrow => self.window.narrowed(self.first),
        };
        self.announced = self.consumed;
        // `left` holds the peer to `granted`, which changes only here, where the peer is sent it.
        let granted = self.granted.max(self.announced.plus(self.window));
        let is_new = granted != self.granted;
        self.granted = granted;
        is_new.then_some(granted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: Window = Window { messages: 4, bytes: 100 };

    #[test]
    fn both_counts_close_the_window() {
        let mut many = SendWindow::new(WINDOW);
        (0..4).for_each(|_| many.send(0));
        assert!(!many.is_open());
        let mut long = SendWindow::new(WINDOW);
        long.send(5000);
        assert!(!long.is_open());
        long.handle_grant(Counts { messages: 5, bytes: 5100 });
        assert!(long.is_open());
        long.handle_grant(Counts { messages: 4, bytes: 100 });
        assert!(long.is_open(), "a late grant takes nothing back");
    }

    #[test]
    fn the_longest_message_closes_any_window_until_read() {
        let len = usize::try_from(MESSAGE_LEN_MAX).unwrap();
        for bytes in [1, 256 << 10, 1 << 30] {
            let window = Window { messages: 10, bytes };
            let (mut sender, mut receiver) = (SendWindow::new(window), ReceiveWindow::new(window));
            for _ in 0..10 {
                assert!(sender.is_open());
                sender.send(len);
                assert!(!sender.is_open(), "a window of {bytes}");
                receiver.receive(len).unwrap();
                assert!(receiver.receive(1).is_err());
                sender.handle_grant(receiver.consume(len, |_| Resize::Keep).unwrap());
            }
        }
        // Which is why a longer one is refused: it would look like a window that is open.
        let mut sender = SendWindow::new(Window { messages: 10, bytes: 1 });
        sender.send(3 * len);
        assert!(sender.is_open());
    }

    #[test]
    fn a_used_window_widens_as_far_as_the_reader_agrees() {
        let mut window = ReceiveWindow::widening(Window { messages: 1, bytes: 100 }, WINDOW);
        let mut grants = Vec::new();
        for resize in [Resize::Keep, Resize::Widen, Resize::Widen, Resize::Widen] {
            window.receive(1).unwrap();
            grants.push(window.consume(1, |_| resize).map(|grant| grant.messages));
        }
        // What is read, and the window besides; with one of 4 a grant is due for two.
        assert_eq!(grants, [Some(2), Some(6), None, Some(8)]);
        assert_eq!(window.window(), WINDOW);
    }

    #[test]
    fn a_sender_beyond_the_window_is_caught() {
        let mut window = ReceiveWindow::new(WINDOW);
        (0..4).for_each(|_| window.receive(1).unwrap());
        assert!(window.receive(1).is_err());
    }

    #[test]
    fn each_side_knows_what_it_has_sent_and_received() {
        let (mut sender, mut receiver) = (SendWindow::new(WINDOW), ReceiveWindow::new(WINDOW));
        for len in [30, 7] {
            sender.send(len);
            receiver.receive(len).unwrap();
        }
        let both = Counts { messages: 2, bytes: 37 };
        assert_eq!((sender.sent(), receiver.received()), (both, both));
        assert_eq!(receiver.unread(), Window { messages: 2, bytes: 37 });
        assert_eq!(receiver.left(), Window { messages: 2, bytes: 63 });
    }

    #[test]
    fn a_grant_is_due_when_half_of_either_count_was_read() {
        let mut window = ReceiveWindow::new(WINDOW);
        let grants = [49, 1].map(|len| {
            window.receive(len).unwrap();
            window.consume(len, |_| Resize::Widen)
        });
        assert_eq!(grants, [None, Some(Counts { messages: 6, bytes: 150 })]);
        let mut window = ReceiveWindow::new(WINDOW);
        window.receive(50).unwrap();
        assert_eq!(window.consume(50, |_| Resize::Widen), Some(Counts { messages: 5, bytes: 150 }));
    }

    #[test]
    fn a_window_shrinks_and_takes_nothing_back() {
        let widest = Window { messages: 16, bytes: 1600 };
        let first = Window { messages: 1, bytes: 100 };
        let mut window = ReceiveWindow::widening(first, widest);
        let mut step = |resize| {
            window.receive(1).unwrap();
            let grant = window.consume(1, |_| resize).map(|grant| grant.messages);
            (grant, window.bound().messages, window.window().messages)
        };
        assert_eq!(step(Resize::Widen), (Some(5), 4, 4));
        let _ = step(Resize::Widen);
        assert_eq!(step(Resize::Widen), (Some(19), 16, 16));
        for _ in 0..7 {
            let _ = step(Resize::Narrow);
        }
        assert_eq!(step(Resize::Narrow), (None, 8, 4), "the half of it was used");
        let bounds: Vec<_> = (0..8).map(|_| step(Resize::Narrow)).collect();
        assert_eq!(bounds[7], (Some(20), 1, 1), "{bounds:?}");
    }

    fn resize() -> impl Strategy<Value = Resize> {
        prop_oneof![Just(Resize::Widen), Just(Resize::Keep), Just(Resize::Narrow)]
    }

    proptest! {
        #[test]
        fn counts_cross_the_wire(messages: u32, bytes: u32) {
            let counts = Counts { messages, bytes };
            prop_assert_eq!(Counts::from_wire(counts.to_wire()), counts);
        }

        #[test]
        fn what_waits_is_bounded_and_no_sender_waits_for_ever(
            messages in 1u32..10,
            bytes in 1u32..200,
            first in (1u32..10, 1u32..200),
            steps in prop::collection::vec((any::<bool>(), 0usize..300), 0..300),
            resizes in prop::collection::vec(resize(), 1..20),
        ) {
            let mut resizes = resizes.into_iter().cycle();
            let mut next = move || resizes.next().expect("it goes on");
            let window = Window { messages, bytes };
            let first = Window { messages: first.0, bytes: first.1 }.min(window);
            let (mut sender, mut receiver) =
                (SendWindow::new(first), ReceiveWindow::widening(first, window));
            let mut waiting: VecDeque<usize> = VecDeque::new();
            for (is_send, len) in steps {
                if is_send {
                    if sender.is_open() {
                        sender.send(len);
                        receiver.receive(len).unwrap();
                        waiting.push_back(len);
                    }
                } else if let Some(len) = waiting.pop_front()
                    && let Some(grant) = receiver.consume(len, |_| next())
                {
                    sender.handle_grant(grant);
                }
                prop_assert!(waiting.len() <= receiver.bound().messages as usize);
                prop_assert!(waiting.len() <= 2 * messages as usize);
                let sum: usize = waiting.iter().sum();
                prop_assert_eq!(receiver.unread().bytes as usize, sum);
                prop_assert!(sum < 2 * bytes as usize + 300);
            }
            while let Some(len) = waiting.pop_front() {
                if let Some(grant) = receiver.consume(len, |_| next()) {
                    sender.handle_grant(grant);
                }
            }
            prop_assert!(sender.is_open());
        }
    }
}
