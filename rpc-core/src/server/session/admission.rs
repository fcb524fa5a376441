//! Early admission: calls of which the headers have come and the message has not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use super::{Phase, ServerSession};
use crate::call::refusal;
use crate::limits::peer_key::PeerKey;
use crate::limits::quota::Charge;
use crate::server::call::time_limit::TimeLimit;
use crate::{CallKind, Deadline, MethodDescriptor};

/// Admits calls of another protocol before their message is read.
///
/// A request of farcall's own protocol is one frame, which is judged by its header. Other protocols
/// have a call without its message for as long as the client likes.
#[derive(Clone)]
pub struct Admission {
    session: Arc<ServerSession>,
}

/// The permit of a call whose message has not come: the call counts among the server's running
/// ones until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct EarlyPermit {
    _charge: Charge<PeerKey>,
}

impl Admission {
    pub(in crate::server) fn new(session: Arc<ServerSession>) -> Self {
        Self { session }
    }

    /// Takes the permit of a call of `method`.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that the server would refuse: while it drains, beyond
    /// `max_calls`, beyond `max_memory`, and by `authorize`.
    pub fn admit(&self, method: &MethodDescriptor) -> Result<EarlyPermit, Status> {
        let session = &*self.session;
        if session.state().phase != Phase::Open {
            return Err(refusal::going_away());
        }
        session.core.memory.check(0)?;
        session.authorize(method)?;
        Ok(EarlyPermit { _charge: session.calls.try_take(1)? })
    }

    /// Returns the time limit of a call that has come now: the client's timeout, or the server's
    /// `unary_timeout` if that is shorter and the call is unary.
    #[must_use]
    pub fn time_limit(&self, kind: CallKind, timeout: Option<Duration>) -> EarlyLimit {
        let client = timeout.map(|timeout| Deadline::after(Instant::now(), timeout));
        let own = self.session.router.rules.unary_timeout();
        EarlyLimit(TimeLimit::of_early(client.zip(timeout), kind, own))
    }
}

/// The time limit of a call whose message has not come.
#[derive(Debug, Clone, Copy)]
pub struct EarlyLimit(TimeLimit);

impl EarlyLimit {
    /// The deadline, if there is one.
    #[must_use]
    pub fn deadline(self) -> Option<Deadline> {
        self.0.deadline()
    }

    /// Returns the status of a call that is over this limit.
    #[must_use]
    pub fn exceeded(self) -> Status {
        self.0.exceeded()
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("session", &self.session).finish()
    }
}
