//! Waiting, in a tokio runtime, until a descriptor of libibverbs has events.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::sys::provider::VerbsError;

/// A duplicate of a descriptor, tied to a runtime by the first wait.
#[derive(Debug, Default)]
pub(crate) struct Readiness(OnceLock<AsyncFd<OwnedFd>>);

/// A message taken from a descriptor.
pub(crate) enum Taken<T> {
    /// Everything there was.
    All(T),
    /// A part; more may be left.
    Part(T),
    /// There was nothing.
    Nothing,
}

impl Readiness {
    /// Takes events by `take` as soon as there are some. The descriptor counts as ready until
    /// `take` has seen its end, because tokio watches it for edges: an event that is left would
    /// make no wake-up of its own.
    pub(crate) fn poll<T>(
        &self,
        descriptor: BorrowedFd<'_>,
        context: &mut Context<'_>,
        mut take: impl FnMut() -> Result<Taken<T>, VerbsError>,
    ) -> Poll<Result<T, VerbsError>> {
        let descriptor = self.watch(descriptor)?;
        loop {
            let mut guard = ready!(descriptor.poll_read_ready(context))
                .map_err(|error| VerbsError::system("wait for an event", error))?;
            let taken = take()?;
            if let Taken::Part(events) = taken {
                return Poll::Ready(Ok(events));
            }
            // Only now: nothing is left, and an event since then makes the descriptor ready anew.
            guard.clear_ready();
            if let Taken::All(events) = taken {
                return Poll::Ready(Ok(events));
            }
        }
    }

    /// Leaves the runtime, before the descriptor is closed.
    pub(crate) fn release(&mut self) {
        drop(self.0.take());
    }

    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<&AsyncFd<OwnedFd>, VerbsError> {
        if let Some(watched) = self.0.get() {
            return Ok(watched);
        }
        if Handle::try_current().is_err() {
            return Err(VerbsError::NoRuntime);
        }
        let failed = |error| VerbsError::system("watch an event descriptor", error);
        let descriptor = descriptor.try_clone_to_owned().map_err(failed)?;
        // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which
        // the `AsyncFd` that owns it does last.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        let watched = watched.map_err(|error| failed(error.into()))?;
        Ok(self.0.get_or_init(|| watched))
    }
}
