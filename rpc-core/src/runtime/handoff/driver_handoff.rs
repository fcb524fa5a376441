//! The driver of a connection, on its way through a delivery.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Resume;
use super::current_slot;
use super::lifo_slot::{displace_lifo_slot, take_noted};

/// What a driver gives along with a frame, so that user code which the frame starts may block.
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

/// Where the driver is.
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
    pub(crate) fn of_caller() -> Self {
        Self::with(None, State::CallersOwn, false)
    }

    /// For a deliverer that no other task can replace: user code that blocks holds it up.
    #[must_use]
    pub fn none() -> Self {
        Self::with(None, State::Kept, false)
    }

    fn with(driver: Option<Box<dyn Resume>>, state: State, has_woken: bool) -> Self {
        Self { driver, state, has_woken, _not_send: PhantomData }
    }

    /// Lets another task go on with the driver if what follows blocks for longer than 40 ms. Where
    /// the task is the call's own, lets another thread run the task that [`note_wake`] told of.
    /// Does nothing on a runtime of one thread.
    ///
    /// [`note_wake`]: super::note_wake
    pub fn release(&mut self) {
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
        match current_slot::put(driver) {
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
            self.driver = current_slot::take();
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

    /// Whether a task that was woken in this poll may still be in the worker's LIFO slot.
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
    fn drop(&mut self) {
        self.reclaim();
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
