//! Whether a call that came back is started again without its caller's knowing.
//!
//! | it came back | it is started again |
//! |---|---|
//! | surely not executed, because the server goes away | once |
//! | maybe executed, because its connection ended | once, if idempotent and replays are left |
//! | in any other way | never |
//!
//! Only a call whose request is one message can be started again: it is still there, typed, with
//! its caller. A stream of responses is the caller's from its first answer on, headers included,
//! as in gRPC's A6: what has been seen cannot be taken back.

use tonic::Status;

use super::connection_manager::ConnectionManager;
use crate::call::log::NameOf;
use crate::wire::PeerText;
use crate::{Idempotency, MayHaveExecuted, MethodDescriptor, NotExecuted};

/// The starts of one call.
pub(super) struct Starts<'a> {
    manager: &'a ConnectionManager,
    method: &'static MethodDescriptor,
    was_refused: bool,
    /// Set when an attempt may have been executed.
    was_lost: bool,
}

impl<'a> Starts<'a> {
    pub(super) fn new(manager: &'a ConnectionManager, method: &'static MethodDescriptor) -> Self {
        Self { manager, method, was_refused: false, was_lost: false }
    }

    /// Whether a call that came back so is to be started again.
    ///
    /// # Errors
    ///
    /// With the call's status when it is not.
    pub(super) fn again(&mut self, status: Status) -> Result<(), Status> {
        if NotExecuted::invites_another_start(&status) && !self.was_refused {
            self.was_refused = true;
            return Ok(());
        }
        if MayHaveExecuted::is_said_by(&status) && !self.was_lost && self.may_replay() {
            let (method, reason) = (self.method.path, PeerText::new(status.message()));
            let code = NameOf(status.code());
            tracing::debug!(target: "farcall::call", method, %code, %reason, "replayed");
            self.was_lost = true;
            return Ok(());
        }
        Err(self.last(status))
    }

    /// The status of a call that is not started again.
    pub(super) fn last(&self, status: Status) -> Status {
        if self.was_lost && NotExecuted::is_said_by(&status) {
            return MayHaveExecuted::mark(status);
        }
        status
    }

    fn may_replay(&self) -> bool {
        let is_idempotent = match self.method.idempotency {
            Idempotency::Idempotent | Idempotency::NoSideEffects => true,
            Idempotency::Unknown => false,
        };
        is_idempotent && self.manager.may_replay()
    }
}
