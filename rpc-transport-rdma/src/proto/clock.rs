//! The time of an event.

use tokio::time::Instant;

/// The time of an event, which is read when something needs it, and at most once: most messages
/// need none.
#[derive(Debug)]
pub(crate) struct Clock {
    read: fn() -> Instant,
    now: Option<Instant>,
}

impl Clock {
    /// The time that `read` gives when it is first asked for.
    pub(crate) fn new(read: fn() -> Instant) -> Self {
        Self { read, now: None }
    }

    /// The time of the event.
    pub(crate) fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(self.read)
    }
}
