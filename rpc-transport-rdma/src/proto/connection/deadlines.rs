//! The deadlines of a connection's timers.

use std::time::Duration;

use rpc_core::Deadline;
use tokio::time::Instant;

use crate::proto::rndv::send::AckTimeouts;

/// The configured timeouts of the peer and its device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// To release what it was offered, and to grant credit.
    pub(crate) release: Duration,
    /// To release what was taken back.
    pub(crate) cancel: Duration,
    /// To answer a READ.
    pub(crate) read: Duration,
    /// To take what was sent before a close, and to drain.
    pub(crate) close: Duration,
}

impl Timeouts {
    /// Maximum time that a transfer waits for memory.
    pub(crate) fn memory(&self) -> Duration {
        memory_timeout(self.release)
    }

    pub(super) fn acks(&self) -> AckTimeouts {
        AckTimeouts { release: self.release, cancel: self.cancel }
    }
}

/// Maximum time that a transfer waits for memory, where the peer waits for `release`: half of that,
/// so that the peer hears of a transfer without memory before it gives the connection up.
pub(crate) fn memory_timeout(release: Duration) -> Duration {
    release / 2
}

/// The purpose of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// Post again: the device took a part, and no completion will say when it takes more.
    RetryPost,
    /// Something waits for credit.
    Credit,
    /// A READ is to be answered.
    Read,
    /// A transfer waits for memory.
    Memory,
    /// The peer is to release something.
    Release,
    /// Sends everything that precedes a close.
    Close,
    /// The device is to halt the queue pairs.
    Halt,
    /// The device is to say that it takes no more receives.
    LastReceive,
    /// Everything in flight is to come back.
    Drain,
}

impl Timer {
    const COUNT: usize = 9;

    const ALL: [Self; Self::COUNT] = [
        Self::RetryPost,
        Self::Credit,
        Self::Read,
        Self::Memory,
        Self::Release,
        Self::Close,
        Self::Halt,
        Self::LastReceive,
        Self::Drain,
    ];
}

/// The deadline of each timer.
#[derive(Debug, Default)]
pub(super) struct TimerTable {
    at: [Option<Instant>; Timer::COUNT],
    next: Option<Instant>,
}

impl TimerTable {
    /// Moves a timer's deadline to `at`, if that is earlier.
    pub(super) fn arm(&mut self, timer: Timer, at: Instant) {
        let entry = &mut self.at[timer as usize];
        // Never later: a deadline that is looked at too early arms itself again, and one too late
        // would hold memory.
        *entry = Some(entry.map_or(at, |before| before.min(at)));
        self.next = Some(self.next.map_or(at, |before| before.min(at)));
    }

    pub(super) fn is_armed(&self, timer: Timer) -> bool {
        self.at[timer as usize].is_some()
    }

    /// Takes a timer that has passed out of the table.
    pub(super) fn take_passed(&mut self, now: Instant) -> Option<Timer> {
        // In the order of `ALL`, whatever passed first: the same run of a script every time.
        let passed = Timer::ALL.into_iter().find(|timer| {
            let at = self.at[*timer as usize];
            at.is_some_and(|at| at <= now)
        })?;
        self.at[passed as usize] = None;
        // Recomputed only here, when a timer has passed: arming happens with every message.
        self.next = self.at.iter().flatten().min().copied();
        Some(passed)
    }

    /// Returns the first deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Any timeout of the configuration may be added: one of more than a year is a year.
pub(super) fn after(now: Instant, timeout: Duration) -> Instant {
    Deadline::after(now, timeout).0
}
