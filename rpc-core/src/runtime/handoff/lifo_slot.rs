//! The LIFO slot of a worker thread: where tokio keeps the task that the thread woke last.
//!
//! No other worker can take that task. So user code that blocks its thread must not leave a task
//! there which other calls depend on. A driver that is handed over knows what it has woken. A call
//! at a port of HTTP/2 runs in a task of its own, beside the task that drives the connection.
//! Reading a request may wake that one: it notes where it was woken and where it ran.

use std::cell::Cell;

use tokio::runtime::{Handle, RuntimeFlavor};

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
pub(super) fn take_noted() -> bool {
    IS_WOKEN.take()
}

/// Moves the task in the LIFO slot of this thread to the run queue of `runtime`, the thread's own,
/// from where other workers steal it: a task that is spawned takes the slot. Does nothing on a
/// runtime of one thread, where no other worker is.
pub fn displace_lifo_slot(runtime: &Handle) {
    if runtime.runtime_flavor() == RuntimeFlavor::MultiThread {
        drop(runtime.spawn(async {}));
    }
}
