//! Whether a task that other calls depend on was woken on this thread and may be in its LIFO slot.
//!
//! A call at a port of HTTP/2 runs in a task of its own, beside the task that drives the
//! connection. To read a request may wake that one, which no other worker can take while it lies in
//! the LIFO slot. A handler that blocks then would stop all calls of the connection.

use std::cell::Cell;

thread_local! {
    static IS_WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// Records that a task that other calls depend on was woken on this thread.
pub fn note_wake() {
    IS_WOKEN.set(true);
}

/// Records that such a task runs on this thread.
pub fn note_poll() {
    IS_WOKEN.set(false);
}

/// Whether one was woken here that has not run here since.
pub(super) fn take() -> bool {
    IS_WOKEN.take()
}
