//! The places of the calls that a server takes at a time, and the callers that wait for one.
//!
//! Calls start in the order in which they came. A place that becomes free is held for the first
//! caller in the line from then on, so that one that is not polled keeps its own place and no
//! other.

use tokio::sync::oneshot;
use tonic::Status;

use crate::call::refusal;
use crate::calls::client::Calls;
use crate::client::session::Session;
use crate::transport::CloseReason;

/// A place that is held for a call which is about to start.
pub(super) struct Place<'a> {
    session: &'a Session,
    is_used: bool,
}

impl Place<'_> {
    /// Gives the place to the call that the caller starts in this section of the lock.
    pub(super) fn leave_to_call<T>(mut self, calls: &mut Calls<T>) {
        calls.release();
        self.is_used = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            let mut state = self.session.state();
            state.calls.release();
            self.session.unlock(state);
        }
    }
}

/// A caller that waits for a place.
struct Waiting<'a> {
    session: &'a Session,
    number: u64,
    is_held: oneshot::Receiver<()>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = self.session.state().line.remove(self.number);
        drop(left);
        // A place may have been held for it meanwhile. Told later, `hand_over` gives it back.
        self.is_held.close();
        if self.is_held.try_recv().is_ok() {
            drop(Place { session: self.session, is_used: false });
        }
    }
}

impl Session {
    /// Waits for a place.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that the session does not start any more.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, it leaves its turn to the next caller.
    pub(super) async fn place(&self) -> Result<Place<'_>, Status> {
        let mut waiting = {
            let mut state = self.state();
            if let Some(status) = state.phase.refusal(&self.server) {
                return Err(status);
            }
            if state.line.len() == 0 && state.calls.has_room() {
                state.calls.hold();
                return Ok(Place { session: self, is_used: false });
            }
            let (caller, is_held) = oneshot::channel();
            Waiting { session: self, number: state.line.push(caller), is_held }
        };
        let held = (&mut waiting.is_held).await;
        // The line is given up when the session leaves the phase that starts calls.
        held.map_err(|_| self.refusal())?;
        Ok(Place { session: self, is_used: false })
    }

    /// Tells a caller, which is out of the line, that its place is held.
    pub(super) fn hand_over(&self, caller: oneshot::Sender<()>) {
        if caller.send(()).is_err() {
            // It has gone. The place is the next one's.
            drop(Place { session: self, is_used: false });
        }
    }

    /// The status of a call that is not started because the session starts none any more.
    fn refusal(&self) -> Status {
        let refusal = self.state().phase.refusal(&self.server);
        refusal.unwrap_or_else(|| refusal::lost(&self.server, &CloseReason::Local))
    }
}
