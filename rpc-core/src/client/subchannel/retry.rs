//! Transparent retries: whether a call that failed is made once more, unseen by its caller.
//!
//! | how it failed | it is retried |
//! |---|---|
//! | not executed: the server is going away | once |
//! | ambiguous: its connection ended | once, if idempotent and within the retry budget |
//! | in any other way | never |
//!
//! A channel to many endpoints replays at another one, and this one does not.
//!
//! Only a call whose request is one message can be retried: its caller still has the message.
//! A stream of responses is committed with its first answer, headers included, as in gRPC's A6:
//! what the caller has seen cannot be taken back.

use tonic::Status;

use crate::call::log::NameOf;
use crate::client::Outgoing;
use crate::client::connection_manager::ConnectionManager;
use crate::wire::PeerText;
use crate::{Idempotency, MayHaveExecuted, Method, NotExecuted};

/// Who makes a call again that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Replays {
    /// The channel itself.
    Here,
    /// The channel to many endpoints of which this is one, so that it is made again once in all.
    ByEndpoints,
}

/// Which transparent retries one call has had.
pub(in crate::client) struct TransparentRetries<'a> {
    manager: &'a ConnectionManager,
    replays: Replays,
    method: &'a Method,
    /// Whether the request is one message.
    is_repeatable: bool,
    was_refused: bool,
    /// Set when an attempt may have been executed.
    is_ambiguous: bool,
}

impl<'a> TransparentRetries<'a> {
    pub(in crate::client) fn new(
        manager: &'a ConnectionManager,
        replays: Replays,
        call: &Outgoing<'a>,
    ) -> Self {
        Self::of(manager, replays, call.method, call.message.is_some())
    }

    /// None yet, of a call of `method`. Only one that is repeatable has any.
    pub(in crate::client) fn of(
        manager: &'a ConnectionManager,
        replays: Replays,
        method: &'a Method,
        is_repeatable: bool,
    ) -> Self {
        Self { manager, replays, method, is_repeatable, was_refused: false, is_ambiguous: false }
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
        if MayHaveExecuted::is_said_by(&status) && !self.is_ambiguous && self.takes_replay() {
            log_replay(self.method, &status);
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

    /// Whether the call may be replayed, and the budget has had room for it.
    fn takes_replay(&self) -> bool {
        self.replays == Replays::Here
            && self.method.idempotency() != Idempotency::Unknown
            && self.manager.take_replay()
    }
}

/// Writes that a call is made again after `status`.
pub(in crate::client) fn log_replay(method: &Method, status: &Status) {
    let (method, reason) = (method.path(), PeerText::new(status.message()));
    let code = NameOf(status.code());
    tracing::debug!(target: "farcall::call", method, %code, %reason, "replayed");
}
