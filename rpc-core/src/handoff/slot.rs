//! The slots of a thread that delivers: farcall's own, and tokio's LIFO slot.
//!
//! Each thread has one slot for the driver that user code on that thread keeps waiting. The monitor
//! looks at it.
//!
//! In its LIFO slot tokio keeps the task that the thread woke last. No other worker can take that
//! task. So user code that blocks its thread must not leave a task there which other calls depend
//! on. A driver that is handed over knows what it has woken. A call at a port of HTTP/2 runs in a
//! task of its own, beside the task that drives the connection. Reading a request may wake that
//! one: it notes where it was woken and where it ran.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};

/// The driver of one connection, or of several, which any task can go on with between two
/// deliveries. It owns everything that reading and delivering need.
pub trait Resume: Any + Send {
    /// The runtime that the driver's tasks run on.
    fn runtime(&self) -> &Handle;

    /// Goes on where the driver was released: what the interrupted delivery held back is sent,
    /// what was read before is delivered, then reading goes on until the connection ends.
    fn resume(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// The slot of one thread. Only that thread fills it; the monitor may empty it.
#[derive(Default)]
pub(super) struct WorkerSlot {
    /// Counts fillings and emptyings by the thread, so that it is odd while user code runs. It is
    /// written under the lock, and read without it by a monitor that only wants to see it change.
    turn: AtomicU64,
    driver: Mutex<Option<Box<dyn Resume>>>,
    /// The tasks that have yielded on this thread.
    yielding: Mutex<Yielding>,
}

/// Tasks that wait for their thread to run what is before them.
#[derive(Default)]
struct Yielding {
    last_id: u64,
    wakers: Vec<(u64, Waker)>,
}

/// A task among those that have yielded on a thread, until it is dropped.
pub(super) struct YieldEntry {
    slot: Arc<WorkerSlot>,
    id: u64,
}

impl Drop for YieldEntry {
    fn drop(&mut self) {
        let mut yielding = self.slot.yielding();
        let index = yielding.wakers.iter().position(|(id, _)| *id == self.id);
        let removed = index.map(|index| yielding.wakers.swap_remove(index));
        // The lock is released before the waker is dropped, which runs the executor's code.
        drop(yielding);
        drop(removed);
    }
}

impl WorkerSlot {
    fn driver(&self) -> MutexGuard<'_, Option<Box<dyn Resume>>> {
        self.driver.lock()
    }

    fn yielding(&self) -> MutexGuard<'_, Yielding> {
        self.yielding.lock()
    }

    /// Takes the tasks that yielded on the thread up to `last_id` and still wait. Returns the id of
    /// the last one that has yielded since, and those tasks.
    pub(super) fn take_overdue(&self, last_id: u64) -> (u64, Vec<Waker>) {
        let mut yielding = self.yielding();
        let overdue = yielding.wakers.extract_if(.., |(id, _)| *id <= last_id);
        let overdue = overdue.map(|(_, waker)| waker).collect();
        (yielding.last_id, overdue)
    }

    /// Returns the number of times that the thread has entered and left user code.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Takes the driver from a thread that is still in that turn.
    pub(super) fn take_in(&self, turn: u64) -> Option<Box<dyn Resume>> {
        let mut driver = self.driver();
        // Compared under the lock: the thread may have begun another delivery since the look, and
        // the driver of that one is not stuck.
        if self.turn() == turn { driver.take() } else { None }
    }

    fn next_turn(&self) {
        // Written by this thread alone.
        self.turn.store(self.turn().wrapping_add(1), Ordering::Relaxed);
    }

    /// Puts a driver in; gives it back if the slot is in use. For its own thread.
    pub(super) fn put(&self, driver: Box<dyn Resume>) -> Result<(), Box<dyn Resume>> {
        if self.turn() % 2 == 1 {
            // User code runs a delivery of its own on this thread, inside `block_in_place`.
            return Err(driver);
        }
        let mut slot = self.driver();
        *slot = Some(driver);
        self.next_turn();
        Ok(())
    }

    /// Takes the driver; `None` when the monitor has it. For its own thread.
    pub(super) fn take(&self) -> Option<Box<dyn Resume>> {
        let mut slot = self.driver();
        self.next_turn();
        // The turn has advanced even if the monitor has the driver: `put` needs it to be even.
        slot.take()
    }

    /// Records that a task has yielded on the thread.
    pub(super) fn enter_yielding(self: &Arc<Self>, waker: &Waker) -> YieldEntry {
        let mut yielding = self.yielding();
        yielding.last_id += 1;
        let id = yielding.last_id;
        yielding.wakers.push((id, waker.clone()));
        YieldEntry { slot: Arc::clone(self), id }
    }

    /// Returns the number of tasks that have yielded on the thread.
    #[cfg(test)]
    pub(super) fn yielding_count(&self) -> usize {
        self.yielding().wakers.len()
    }
}

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

/// Returns true if a task was woken here that has not run here since.
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
