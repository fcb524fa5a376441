//! The slot of the current thread.

use std::sync::Arc;
use std::task::Waker;

use super::worker_slot::{WorkerSlot, YieldEntry};
use super::{Resume, monitor};

thread_local! {
    static SLOT: Arc<WorkerSlot> = monitor::register();
}

/// Puts a driver into the slot of this thread; gives it back if the slot is in use.
pub(super) fn put(driver: Box<dyn Resume>) -> Result<(), Box<dyn Resume>> {
    let mut driver = Some(driver);
    let put = |slot: &Arc<WorkerSlot>| driver.take().map_or(Ok(()), |driver| slot.put(driver));
    // A thread that ends has no slot any more.
    if let Ok(put) = SLOT.try_with(put) {
        put?;
        monitor::wake();
    }
    driver.map_or(Ok(()), Err)
}

/// Records that a task has yielded on this thread; `None` on a thread that ends.
pub(super) fn enter_yielding(waker: &Waker) -> Option<YieldEntry> {
    SLOT.try_with(|slot| slot.enter_yielding(waker)).ok()
}

/// Empties the slot of this thread; `None` when the monitor has taken the driver.
pub(super) fn take() -> Option<Box<dyn Resume>> {
    SLOT.try_with(|slot| slot.take()).ok().flatten()
}

/// How many tasks have yielded on this thread.
#[cfg(test)]
pub(super) fn yielding_count() -> usize {
    SLOT.with(|slot| slot.yielding_count())
}
