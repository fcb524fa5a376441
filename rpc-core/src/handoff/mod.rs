//! Handing the driver of a connection over to another task while user code blocks its thread.
//!
//! A handler is polled once in the task that reads its connection, because most handlers are done
//! then, and a task for each would cost more than they do. A handler that blocks in that poll (a
//! CPU loop, `std::thread::sleep`, blocking file I/O) would keep the connection from being read:
//! its other calls would wait, its pings would go unanswered, and the peer would take it for dead.
//!
//! So the driver is released before user code runs and reclaimed afterwards. Between the two it
//! lies in the slot of its thread (`worker_slot`). A monitor thread, one for the process, looks at
//! these slots every 20 ms while handlers run. A driver that it finds in the same delivery twice
//! goes on in a task of its own; the blocked task finds it gone and ends. Go's
//! scheduler retakes the processor of a thread that blocks in a system call in the same way.
//!
//! Tasks that yielded on a thread are in a list that only this thread looks at. The monitor wakes
//! those that yielded by [`yield_now`] and still wait a tick later, whatever blocks the thread.
//!
//! A driver that cannot be handed over, because its task is another library's, needs that task to
//! be runnable elsewhere while user code blocks: the task notes where it was woken (`lifo_slot`).
//!
//! A call pays two uncontended locks of its thread's own slot. Nothing is paid on a runtime of one
//! thread, where no other task could go on: there a handler that blocks holds up everything, and
//! has to use `tokio::task::spawn_blocking`. The same holds when all threads of a runtime block.
//! The cores of a server are such runtimes. Each knows its home, the runtime that serves, where
//! what may block can run.

mod home;
mod monitor;
mod slot;

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};

use self::slot::take_noted;

pub use home::{Core, current_core, set_core};
pub(crate) use home::{blocking_at_home, home};
pub use slot::{Resume, displace_lifo_slot, note_poll, note_wake};

/// A driver's companion to a frame, with which user code that the frame starts may block.
///
/// The receiver of the frame releases the driver before it runs user code. Afterwards the deliverer
/// takes it back with [`Handoff::into_driver`], unless another task has gone on with it meanwhile.
/// It belongs to one thread, and lives no longer than one delivery.
pub struct Handoff {
    driver: Option<Box<dyn Resume>>,
    state: State,
    has_woken: bool,
    /// The slot that it uses is that of the current thread.
    _not_send: PhantomData<*const ()>,
}

/// The place of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was released, or there is nothing to release.
    Kept,
    /// There is none: the task that delivers is the call's own.
    CallersOwn,
    /// It lies in the thread's slot, or another task has it.
    Released,
    /// It was taken back in time.
    Reclaimed,
    /// Another task has it.
    Taken,
}

impl Handoff {
    /// For the delivery of one frame by `driver`. `has_woken` says whether an earlier delivery of
    /// the same poll has woken a task, which [`Handoff::has_woken`] tells.
    #[must_use]
    pub fn new(driver: Box<impl Resume>, has_woken: bool) -> Self {
        let driver: Box<dyn Resume> = driver;
        Self::with(Some(driver), State::Kept, has_woken)
    }

    /// For a deliverer that is the task of the call itself: user code that blocks holds up that
    /// call alone.
    #[must_use]
    pub(crate) fn callers_own() -> Self {
        Self::with(None, State::CallersOwn, false)
    }

    /// For a deliverer that no other task can replace: user code that blocks holds it up.
    #[must_use]
    pub fn none() -> Self {
        Self::without_driver(false)
    }

    /// For a delivery to a handler that runs no user code, or on a runtime of one thread, where no
    /// other task could run meanwhile. `has_woken` is as for [`Handoff::new`].
    #[must_use]
    pub fn without_driver(has_woken: bool) -> Self {
        Self::with(None, State::Kept, has_woken)
    }

    fn with(driver: Option<Box<dyn Resume>>, state: State, has_woken: bool) -> Self {
        Self { driver, state, has_woken, _not_send: PhantomData }
    }

    /// Lets another task go on with the driver if what follows blocks for longer than 40 ms. Where
    /// the task is the call's own, lets another thread run the task that [`note_wake`] told of.
    /// Does nothing on a runtime of one thread.
    ///
    /// [`note_wake`]: note_wake
    #[inline]
    pub fn release(&mut self) {
        if self.state == State::CallersOwn || self.driver.is_some() {
            self.let_others_run();
        }
    }

    fn let_others_run(&mut self) {
        if self.state == State::CallersOwn && take_noted() {
            displace_lifo_slot(&Handle::current());
        }
        let has_other_threads = |driver: &mut Box<dyn Resume>| {
            driver.runtime().runtime_flavor() == RuntimeFlavor::MultiThread
        };
        let Some(driver) = self.driver.take_if(has_other_threads) else { return };
        if std::mem::take(&mut self.has_woken) {
            displace_lifo_slot(driver.runtime());
        }
        match monitor::put(driver) {
            Ok(()) => self.state = State::Released,
            // An outer delivery has the slot, or it is gone with its thread: this driver waits for
            // the user code.
            Err(driver) => self.driver = Some(driver),
        }
    }

    /// Takes the driver back; true when another task has gone on with it. Ending a delivery does
    /// the same.
    pub fn reclaim(&mut self) -> bool {
        if self.state == State::Released {
            self.driver = monitor::take();
            self.state = if self.driver.is_some() { State::Reclaimed } else { State::Taken };
        }
        self.state == State::Taken
    }

    /// Records that this delivery has woken or spawned a task.
    ///
    /// Tokio keeps the most recently woken task in the worker's LIFO slot, where no other worker
    /// can take it. User code that blocks later in the same poll would keep that task from running.
    pub fn woke(&mut self) {
        self.has_woken = true;
    }

    /// Returns true if a task that was woken in this poll may still be in the worker's LIFO slot.
    #[must_use]
    pub fn has_woken(&self) -> bool {
        self.has_woken
    }

    /// Ends the delivery and gives the driver back; `None` when another task has gone on with it,
    /// or there was none. `D` is the type that the delivery began with.
    #[must_use]
    pub fn into_driver<D: Resume>(mut self) -> Option<Box<D>> {
        self.reclaim();
        let driver: Box<dyn Any> = self.driver.take()?;
        driver.downcast().ok()
    }
}

/// A receiver that panics leaves the driver in the slot: it ends with the task, as it would have
/// without a slot.
impl Drop for Handoff {
    #[inline]
    fn drop(&mut self) {
        if self.state == State::Released {
            self.reclaim();
        }
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("state", &self.state)
            .field("has_woken", &self.has_woken)
            .finish_non_exhaustive()
    }
}

/// Lets other tasks run first, as [`tokio::task::yield_now`] does.
///
/// Tokio keeps a task that yields in a list of its worker, and looks at the list when the worker
/// has nothing else to run. If a task that runs before it blocks the worker, no other worker finds
/// the one that yielded. Here the monitor wakes it after at most 40 ms, and another worker runs it.
///
/// # Cancel safety
///
/// This function is cancel safe: dropped, it leaves the list.
pub async fn yield_now() {
    let mut entry = None;
    let mut yielding = pin!(tokio::task::yield_now());
    poll_fn(|context| {
        let yielded = yielding.as_mut().poll(context);
        if yielded.is_pending() {
            entry = monitor::enter_yielding(context.waker());
        }
        yielded
    })
    .await;
    drop(entry);
}

#[cfg(test)]
mod tests;
