//! The lock around a simulated network, its clock, and its wake-ups.
//!
//! Whatever is done to the network is done by [`Fabric::enter`]: what has become due happens first,
//! and tasks that have to look again are woken once the lock is free.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rpc_core::handoff::displace_lifo_slot;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::state::{Nanos, NetworkState, nanos};
use super::violation::SimViolation;

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

    /// What the network does meanwhile, apart from what it wakes. Never inlined, so that a count of
    /// instructions can leave out by name what a device would do.
    #[inline(never)]
    fn simulate<R>(
        &self,
        change: impl FnOnce(&mut NetworkState) -> R,
    ) -> (R, Vec<Waker>, Option<SimViolation>) {
        // A panic inside is a failed test, which may still look at what is there.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = nanos(Instant::now().saturating_duration_since(self.start));
        state.advance(now);
        let result = change(&mut state);
        state.advance(now);
        (result, state.take_wakes(), state.take_new_violation())
    }

    /// A moment of the network as tokio's.
    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.start + Duration::from_nanos(at)
    }
}
