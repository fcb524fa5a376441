//! A place for each thread that delivers: the driver that user code on that thread keeps waiting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver_handoff::Resume;
use super::monitor;

thread_local! {
    static SLOT: Arc<WorkerSlot> = monitor::register();
}

/// The slot of one thread. Only that thread fills it; the monitor may empty it.
#[derive(Default)]
pub(super) struct WorkerSlot {
    /// Counts fillings and emptyings by the thread, so that it is odd while user code runs. It is
    /// written under the lock, and read without it by a monitor that only wants to see it change.
    turn: AtomicU64,
    driver: Mutex<Option<Box<dyn Resume>>>,
}

impl WorkerSlot {
    fn driver(&self) -> MutexGuard<'_, Option<Box<dyn Resume>>> {
        // An `Option` is whole at any time.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the thread has entered and left user code.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Takes the driver from a thread that is still in that turn.
    pub(super) fn take_in(&self, turn: u64) -> Option<Box<dyn Resume>> {
        let mut driver = self.driver();
        if self.turn() == turn { driver.take() } else { None }
    }

    fn next_turn(&self) {
        // Written by this thread alone.
        self.turn.store(self.turn().wrapping_add(1), Ordering::Relaxed);
    }

    fn put(&self, driver: Box<dyn Resume>) -> Result<(), Box<dyn Resume>> {
        if self.turn() % 2 == 1 {
            // User code runs a delivery of its own on this thread, inside `block_in_place`.
            return Err(driver);
        }
        let mut slot = self.driver();
        *slot = Some(driver);
        self.next_turn();
        Ok(())
    }

    fn take(&self) -> Option<Box<dyn Resume>> {
        let mut slot = self.driver();
        self.next_turn();
        slot.take()
    }
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

/// Empties the slot of this thread; `None` when the monitor has taken the driver.
pub(super) fn take() -> Option<Box<dyn Resume>> {
    SLOT.try_with(|slot| slot.take()).ok().flatten()
}
