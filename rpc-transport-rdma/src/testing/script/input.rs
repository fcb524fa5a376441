//! The bytes of a script, its clock, which stands until it is set, and what the script has come to.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::connection::Timeouts;

/// The progress of a script, which shows that scripts come far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Frames that were sent in a message.
    pub frames_sent: u32,
    /// Frames that came in a message and were handed out.
    pub frames_received: u32,
    /// Frames that were offered to the peer.
    pub offers_sent: u32,
    /// Frames of these whose memory came back.
    pub offers_released: u32,
    /// Keys that were revoked, since the peer kept what was taken back.
    pub keys_revoked: u32,
    /// Frames that were read from the peer.
    pub frames_fetched: u32,
    /// Frames that the peer offered, and that will not come.
    pub frames_withheld: u32,
    /// Waits for credit that were logged.
    pub stalls: u32,
    /// Deadlines that passed.
    pub timeouts: u32,
    /// Ends by a message against the rules.
    pub violations: u32,
    /// Ends that this side wanted.
    pub ends_in_order: u32,
}

/// The bytes of a script that are left.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte; zero when there is none.
    pub(super) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Returns the next bytes, at most `count`.
    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One of `count` things; none of none.
    pub(super) fn pick(&mut self, count: usize) -> Option<usize> {
        let byte = usize::from(self.byte());
        (count > 0).then(|| byte % count)
    }
}

pub(crate) const TIMEOUTS: Timeouts = Timeouts {
    release: Duration::from_secs(20),
    cancel: Duration::from_secs(2),
    read: Duration::from_secs(10),
    close: Duration::from_secs(5),
};

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time on this thread.
///
/// # Panics
///
/// Panics if it was never set.
pub(crate) fn now() -> Instant {
    NOW.get().expect("the time is set first")
}

pub(crate) fn set_now(at: Instant) {
    NOW.set(Some(at));
}

pub(crate) fn clock() -> Clock {
    Clock::new(now)
}
