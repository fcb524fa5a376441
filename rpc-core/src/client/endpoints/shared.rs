//! The state that a channel's callers and its driver share, for a channel with many endpoints.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::resolve::Refresh;
use crate::balance::{
    CallEnd, Candidate, Connectivity, EndpointId, Load, Picker, Roster, Suspicion,
};
use crate::connect::with_retry;

/// The endpoints, a picker among them, and why there is none.
///
/// The roster's lock is taken where something changes, and never while a future is polled. Callers
/// pick from `picker` without it.
#[derive(Debug)]
pub(super) struct Shared<L> {
    roster: Mutex<State<L>>,
    picker: ArcSwap<Picker<L>>,
    /// Sent after each new picker, for callers that wait for an endpoint.
    changes: watch::Sender<()>,
    pub(super) refresh: Refresh,
    ejects_at: u32,
}

#[derive(Debug)]
pub(super) struct State<L> {
    pub(super) roster: Roster<L>,
    /// Why the last attempt to connect, or to resolve, failed.
    pub(super) failure: Option<Arc<str>>,
    /// Time of the next attempt, if one is scheduled.
    pub(super) retry_at: Option<Instant>,
    /// The driver while no task runs it, of a type that only `driver` knows. Under the same lock as
    /// the endpoints.
    pub(super) parked: Option<Box<dyn Any + Send>>,
}

impl<L: Clone> Shared<L> {
    pub(super) fn new(roster: Roster<L>, driver: Box<dyn Any + Send>) -> Self {
        let picker = ArcSwap::new(roster.picker());
        let ejects_at = roster.config().outlier_detection.consecutive_failures;
        let state = State { roster, failure: None, retry_at: None, parked: Some(driver) };
        Self {
            picker,
            ejects_at,
            roster: Mutex::new(state),
            changes: watch::Sender::new(()),
            refresh: Refresh::default(),
        }
    }

    /// Changes the state and publishes a new picker.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State<L>) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        // Under the lock: of two changes the later picker stays.
        self.picker.store(state.roster.picker());
        // Before the notification: the callers that it wakes may take the lock.
        drop(state);
        self.changes.send_replace(());
        changed
    }

    /// Reads the state under the lock.
    pub(super) fn look<T>(&self, look: impl FnOnce(&State<L>) -> T) -> T {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.roster.lock()
    }

    /// The picker of this moment.
    pub(super) fn picker(&self) -> arc_swap::Guard<Arc<Picker<L>>> {
        self.picker.load()
    }

    /// Tells of the changes after this call.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Why there is no endpoint to call.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.look(|state| state.failure.clone())
    }

    /// The same for a status, with the time of the next attempt; `otherwise` where nothing has
    /// failed.
    pub(super) fn describe_failure(&self, otherwise: &str) -> String {
        // One look for both: a reason is shown with the time of its own next attempt.
        let (failure, retry_at) = self.look(|state| (state.failure.clone(), state.retry_at));
        let reason = failure.as_deref().unwrap_or(otherwise);
        match retry_at {
            Some(due) => with_retry(reason, due.saturating_duration_since(now())),
            None => reason.to_owned(),
        }
    }

    /// Takes the driver to a task.
    pub(super) fn take_driver(&self) -> Option<Box<dyn Any + Send>> {
        self.lock().parked.take()
    }

    /// Returns true if no task runs the driver.
    pub(super) fn is_parked(&self) -> bool {
        self.lock().parked.is_some()
    }

    /// Returns the status of each endpoint, without its path.
    #[cfg(test)]
    pub(super) fn status(&self) -> Vec<crate::balance::EndpointStatus> {
        self.look(|state| state.roster.status())
    }

    /// The handle of the first endpoint that is connected.
    pub(super) fn first_connected(&self) -> Option<L> {
        self.look(|state| state.roster.first_ready())
    }

    /// The state of the channel as a whole.
    pub(super) fn connectivity(&self) -> Connectivity {
        self.look(|state| state.roster.connectivity())
    }
}

/// A call that counts as in flight at its endpoint; dropped before its end is known, it counts as
/// cancelled.
#[derive(Debug)]
pub(super) struct Counted<L: Clone> {
    shared: Arc<Shared<L>>,
    id: EndpointId,
    load: Arc<Load>,
    began_at: Instant,
    end: CallEnd,
}

impl<L: Clone> Counted<L> {
    pub(super) fn new(shared: &Arc<Shared<L>>, candidate: &Candidate<L>, now: Instant) -> Self {
        // Before the call is sent: other picks have to see it while it is on its way.
        candidate.load.start();
        let (shared, load) = (Arc::clone(shared), Arc::clone(&candidate.load));
        Self { shared, id: candidate.id, load, began_at: now, end: CallEnd::Cancelled }
    }

    pub(super) fn id(&self) -> EndpointId {
        self.id
    }

    /// Records the answer, whose latency counts from the pick.
    pub(super) fn answered(&mut self, now: Instant) {
        let latency = now.saturating_duration_since(self.began_at);
        self.end = CallEnd::Answered { latency };
    }

    /// Records that the endpoint has failed.
    pub(super) fn failed(&mut self) {
        self.end = CallEnd::Failed;
    }
}

impl<L: Clone> Drop for Counted<L> {
    fn drop(&mut self) {
        let now = now();
        // Loads are atomics. The roster's lock is taken only for an endpoint that may have to
        // leave.
        let suspicion = self.load.end(self.end, self.shared.ejects_at, now);
        if suspicion != Suspicion::None {
            let id = self.id;
            self.shared.change(|state| state.roster.handle_suspicion(id, suspicion, now));
        }
    }
}

/// The clock of the runtime, which tests stop.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
