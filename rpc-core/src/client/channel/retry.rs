//! Transparent retries: whether a call that failed is made once more, unseen by its caller.
//!
//! | how it failed | it is retried |
//! |---|---|
//! | not executed: the server is going away | once |
//! | ambiguous: its connection ended | once, if idempotent and within the retry budget |
//! | in any other way | never |
//!
//! Only a call whose request is one message can be retried: its caller still has the message.
//! A stream of responses is committed with its first answer, headers included, as in gRPC's A6:
//! what the caller has seen cannot be taken back.

use tonic::Status;

use crate::call::log::NameOf;
use crate::client::Outgoing;
use crate::client::connection_manager::ConnectionManager;
use crate::wire::PeerText;
use crate::{Idempotency, MayHaveExecuted, MethodDescriptor, NotExecuted};

/// The attempts at one call.
pub(in crate::client) struct Attempts<'a> {
    manager: &'a ConnectionManager,
    method: &'static MethodDescriptor,
    /// Whether the request is one message.
    is_repeatable: bool,
    was_refused: bool,
    /// Set when an attempt may have been executed.
    is_ambiguous: bool,
}

impl<'a> Attempts<'a> {
    pub(in crate::client) fn new(manager: &'a ConnectionManager, call: &Outgoing<'_>) -> Self {
        Self::of(manager, call.method, call.message.is_some())
    }

    /// The attempts at a call of `method`, of which there may be several if it is repeatable.
    pub(in crate::client) fn of(
        manager: &'a ConnectionManager,
        method: &'static MethodDescriptor,
        is_repeatable: bool,
    ) -> Self {
        Self { manager, method, is_repeatable, was_refused: false, is_ambiguous: false }
    }

    /// Allows one more attempt after this status.
    ///
    /// # Errors
    ///
    /// With the call's final status when there is none.
    pub(in crate::client) fn retry_after(&mut self, status: Status) -> Result<(), Status> {
        if !self.is_repeatable {
            return Err(status);
        }
        if NotExecuted::is_retryable(&status) && !self.was_refused {
            self.was_refused = true;
            return Ok(());
        }
        if MayHaveExecuted::is_said_by(&status) && !self.is_ambiguous && self.may_retry() {
            let (method, reason) = (self.method.path, PeerText::new(status.message()));
            let code = NameOf(status.code());
            tracing::debug!(target: "farcall::call", method, %code, %reason, "replayed");
            self.is_ambiguous = true;
            return Ok(());
        }
        Err(self.final_status(status))
    }

    /// The status of a call that is not retried. It stays ambiguous if an earlier attempt was.
    pub(in crate::client) fn final_status(&self, status: Status) -> Status {
        if self.is_ambiguous && NotExecuted::is_said_by(&status) {
            return MayHaveExecuted::mark(status);
        }
        status
    }

    fn may_retry(&self) -> bool {
        let is_idempotent = match self.method.idempotency {
            Idempotency::Idempotent | Idempotency::NoSideEffects => true,
            Idempotency::Unknown => false,
        };
        is_idempotent && self.manager.may_retry()
    }
}
