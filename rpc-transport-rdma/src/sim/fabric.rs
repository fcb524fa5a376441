//! The lock around a simulated network, its clock, and its wake-ups.
//!
//! Whatever is done to the network is done by [`Fabric::enter`]: what has become due happens first,
//! and tasks that have to look again are woken once the lock is free.
//!
//! A waiting task sleeps until the network's next event is due and then makes it happen, so that
//! the network needs no task of its own and belongs to no runtime.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rpc_core::handoff::displace_lifo_slot;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sim::state::{Nanos, NetworkState, nanos};
use crate::sim::violation::SimViolation;
use crate::sys::provider::VerbsError;

#[derive(Debug)]
pub(crate) struct Fabric {
    start: Instant,
    state: Mutex<NetworkState>,
    is_strict: AtomicBool,
}

impl Fabric {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            state: Mutex::new(NetworkState::new(seed)),
            is_strict: AtomicBool::new(false),
        })
    }

    /// Lets a violation panic where it happens.
    pub(crate) fn be_strict(&self) {
        self.is_strict.store(true, Ordering::Relaxed);
    }

    /// Does something to the network.
    pub(crate) fn enter<R>(&self, change: impl FnOnce(&mut NetworkState) -> R) -> R {
        let (result, wakes, violation) = self.simulate(change);
        let has_woken = !wakes.is_empty();
        wakes.into_iter().for_each(Waker::wake);
        // The events of a device come from outside, and so do its wake-ups; those of a simulated
        // device come from the thread that posts or polls, whose LIFO slot keeps the last of them.
        // When a handler then blocks that thread, the peer's worker would never run.
        if let (true, Ok(runtime)) = (has_woken, Handle::try_current()) {
            displace_lifo_slot(&runtime);
        }
        if let Some(violation) = violation
            && self.is_strict.load(Ordering::Relaxed)
            && !std::thread::panicking()
        {
            panic!("the simulated device was misused: {violation}");
        }
        result
    }

    /// Simulates the network until `wake`. Never inlined, so that a count of instructions can
    /// exclude the device's work by name.
    #[inline(never)]
    fn simulate<R>(
        &self,
        change: impl FnOnce(&mut NetworkState) -> R,
    ) -> (R, Vec<Waker>, Option<SimViolation>) {
        // A panic inside is a failed test, which may still look at what is there.
        let mut state = self.state.lock();
        let now = nanos(Instant::now().saturating_duration_since(self.start));
        state.advance(now);
        let result = change(&mut state);
        state.advance(now);
        (result, state.take_wakes(), state.take_new_violation())
    }

    /// Panics with the violations that no test has read. During another panic it logs them.
    pub(crate) fn expect_no_unread_violations(&self) {
        // The lock is free again before the panic, and a panicked test had it: see `simulate`.
        let unread = self.state.lock().take_unread();
        if unread.is_empty() {
            return;
        }
        let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
        let unread = unread.join("; ");
        if std::thread::panicking() {
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, ERROR, "no test has read violations of a simulated network", unread
            );
        } else {
            panic!("no test has read violations of a simulated network: {unread}");
        }
    }

    /// A moment of the network as tokio's.
    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.start + Duration::from_nanos(at)
    }
}

/// Violations after the last handle of the test was dropped.
impl Drop for Fabric {
    fn drop(&mut self) {
        self.expect_no_unread_violations();
    }
}

/// The place of the one task that waits for a queue's or a device's events.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Waiter {
    /// Polls for what `take` takes from the network. `id` is the object that is waited for.
    pub(crate) fn poll<T>(
        &self,
        fabric: &Fabric,
        id: u32,
        context: &mut Context<'_>,
        mut take: impl FnMut(&mut NetworkState) -> Option<T>,
    ) -> Poll<Result<T, VerbsError>> {
        if Handle::try_current().is_err() {
            return Poll::Ready(Err(VerbsError::NoRuntime));
        }
        let mut sleep = self.sleep.lock();
        loop {
            let entered = fabric.enter(|state| match take(state) {
                Some(taken) => {
                    state.stop_waiting(id);
                    Ok(taken)
                }
                None => Err(state.wait(id, context.waker().clone())),
            });
            let next = match entered {
                Ok(taken) => return Poll::Ready(Ok(taken)),
                Err(next) => next,
            };
            // Made anew each time: the last one may belong to another runtime.
            *sleep = next.map(|at| Box::pin(sleep_until(fabric.instant(at))));
            let Some(sleep) = &mut *sleep else { return Poll::Pending };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
