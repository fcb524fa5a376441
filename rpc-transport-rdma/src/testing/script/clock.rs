//! The clock of a script, and of a test of single events: it stands until it is set.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::connection::Timeouts;

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
/// When it was never set.
pub(crate) fn now() -> Instant {
    NOW.get().expect("the time is set first")
}

pub(crate) fn set_now(at: Instant) {
    NOW.set(Some(at));
}

pub(crate) fn clock() -> Clock {
    Clock::new(now)
}
