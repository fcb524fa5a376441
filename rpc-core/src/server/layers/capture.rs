//! The answer of a handler under layers, on its way out through them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::Status;

use super::ServerResponse;

/// Where a handler's answer waits until the layers have seen it.
#[derive(Debug, Default)]
pub(in crate::server) struct Capture {
    /// That of the layers around these, if there are any. They may end the call while a stream is
    /// being sent, and then have to know how far it has come.
    outer: Option<Arc<Self>>,
    state: Mutex<Captured>,
}

#[derive(Debug, Default)]
struct Captured {
    place: u64,
    result: Option<Result<ServerResponse, Status>>,
}

impl Capture {
    /// Where the answer waits for layers that are inside of others: those of `outer`.
    pub(super) fn inside(outer: Option<Arc<Self>>) -> Self {
        Self { outer, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Captured> {
        // Every change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the answer.
    pub(in crate::server) fn set(&self, result: Result<ServerResponse, Status>) {
        self.state().result = Some(result);
    }

    /// Records how many frames of the answer have been sent.
    pub(in crate::server) fn set_place(&self, place: u64) {
        self.state().place = place;
        if let Some(outer) = &self.outer {
            outer.set_place(place);
        }
    }

    pub(super) fn place(&self) -> u64 {
        self.state().place
    }

    pub(super) fn take(&self) -> Option<Result<ServerResponse, Status>> {
        self.state().result.take()
    }
}
