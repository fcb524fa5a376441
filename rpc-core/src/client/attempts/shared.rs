//! The attempts at one call, as the levels see them that make the call again.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tonic::Status;

use super::machine::{Attempts, Next, Servers};
use crate::balance::EndpointId;
use crate::call::log::NameOf;
use crate::metrics::{RetryKind, retried, retry_denied};
use crate::wire::PeerText;
use crate::{MayHaveExecuted, Method};

/// The attempts at one call that several levels make again, or that run side by side. An extension
/// of the call, which its attempts share.
#[derive(Debug, Clone)]
pub(in crate::client) struct SharedAttempts(Arc<Mutex<AttemptsSoFar>>);

#[derive(Debug)]
struct AttemptsSoFar {
    attempts: Attempts,
    /// The endpoints that they were sent to. The next one goes elsewhere if possible.
    tried: Vec<EndpointId>,
}

impl SharedAttempts {
    pub(in crate::client) fn new(attempts: Attempts) -> Self {
        Self(Arc::new(Mutex::new(AttemptsSoFar { attempts, tried: Vec::new() })))
    }

    /// Returns those of a level that makes no call again.
    pub(in crate::client) fn none() -> &'static Self {
        static NONE: LazyLock<SharedAttempts> =
            LazyLock::new(|| SharedAttempts::new(Attempts::none()));
        &NONE
    }

    fn lock(&self) -> MutexGuard<'_, AttemptsSoFar> {
        // It is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the endpoints that attempts were sent to.
    pub(in crate::client) fn tried(&self) -> Vec<EndpointId> {
        self.lock().tried.clone()
    }

    /// Records an endpoint that an attempt is sent to.
    pub(in crate::client) fn push(&self, id: EndpointId) {
        self.lock().tried.push(id);
    }

    /// Changes or reads the attempts.
    pub(in crate::client) fn with<T>(&self, change: impl FnOnce(&mut Attempts) -> T) -> T {
        change(&mut self.lock().attempts)
    }
}

/// The attempts as one level sees them: its own, unless the levels above share theirs.
#[derive(Debug)]
pub(in crate::client) struct LevelAttempts<'a> {
    method: &'a Method,
    servers: Servers,
    own: Attempts,
    shared: Option<&'a SharedAttempts>,
}

impl<'a> LevelAttempts<'a> {
    pub(in crate::client) fn new(
        method: &'a Method,
        servers: Servers,
        is_repeatable: bool,
        shared: Option<&'a SharedAttempts>,
    ) -> Self {
        Self { method, servers, own: Attempts::new(method, is_repeatable), shared }
    }

    /// Allows another attempt at once.
    ///
    /// # Errors
    ///
    /// Returns the final status if there is none.
    pub(in crate::client) fn failed(
        &mut self,
        status: Status,
        take_replay: impl FnOnce() -> bool,
    ) -> Result<(), Status> {
        let method = self.method;
        let take_replay = || {
            let is_allowed = take_replay();
            if !is_allowed {
                retry_denied(method, RetryKind::Replay);
            }
            is_allowed
        };
        let next = match self.shared {
            None => self.own.failed(status, self.servers, take_replay),
            Some(shared) => {
                shared.with(|attempts| attempts.failed(status, self.servers, take_replay))
            }
        };
        match next {
            Next::Again { status, .. } => {
                if MayHaveExecuted::is_said_by(&status) {
                    retried(self.method, RetryKind::Replay);
                    log_replay(self.method, &status);
                } else {
                    retried(self.method, RetryKind::NotExecuted);
                }
                Ok(())
            }
            Next::End(status) => Err(status),
        }
    }

    /// Returns the status of a call of which no attempt could be made.
    pub(in crate::client) fn final_status(&self, status: Status) -> Status {
        match self.shared {
            None => self.own.final_status(status),
            Some(shared) => shared.with(|attempts| attempts.final_status(status)),
        }
    }
}

/// Logs a replay.
fn log_replay(method: &Method, status: &Status) {
    let (method, reason) = (method.path(), PeerText::new(status.message()));
    let code = NameOf(status.code());
    tracing::debug!(target: "farcall::call", method, %code, %reason, "replayed");
}
