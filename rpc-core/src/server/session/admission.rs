//! Early admission: calls of which the headers have come and the message has not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use super::ServerSession;
use super::in_flight::Phase;
use crate::call::refusal;
use crate::limits::quota::Charge;
use crate::limits::quota::PeerKey;
use crate::server::call::context::TimeLimit;
use crate::server::call::record::CallRecord;
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
/// ones until this is dropped. The log then says that its client has given it up, unless it has
/// ended otherwise.
#[derive(Debug)]
#[must_use]
pub struct EarlyPermit {
    session: Arc<ServerSession>,
    record: Option<CallRecord>,
    _charge: Charge<PeerKey>,
}

impl EarlyPermit {
    /// Ends with a message that has come. The log says of the call what becomes of it from now on.
    pub fn complete(mut self) {
        // Taken away from the drop, which would log the call as given up.
        self.record = None;
    }

    /// Ends with the status that the call is answered with, since its message came too late.
    pub fn fail(mut self, status: &Status) {
        if let Some(record) = self.record.take() {
            record.log_unanswered(self.session.in_flight.lines(), status.code(), status.message());
        }
    }
}

impl Drop for EarlyPermit {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.session.in_flight.log_given_up(&record);
        }
    }
}

impl Admission {
    pub(in crate::server) fn new(session: Arc<ServerSession>) -> Self {
        Self { session }
    }

    /// Takes the permit of a call of `method`, whose client allows it `timeout` from now on.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that the server would refuse, and logs it: while it drains,
    /// beyond `max_calls`, beyond `max_memory`, and by `authorize`.
    pub fn admit(
        &self,
        method: &'static MethodDescriptor,
        timeout: Option<Duration>,
    ) -> Result<EarlyPermit, Status> {
        match self.charge(method) {
            Ok(charge) => {
                let log = self.session.router.rules.log();
                let record = CallRecord::begin_early(log, Some(method), timeout);
                Ok(EarlyPermit { session: Arc::clone(&self.session), record, _charge: charge })
            }
            Err(status) => {
                self.log_refusal(Some(method), &status);
                Err(status)
            }
        }
    }

    fn charge(&self, method: &MethodDescriptor) -> Result<Charge<PeerKey>, Status> {
        let session = &*self.session;
        if session.state().phase != Phase::Open {
            return Err(refusal::going_away());
        }
        session.core().memory.check(0)?;
        session.authorize(method)?;
        // The charge last: a call that was refused before has nothing to give back.
        session.calls.try_take(1)
    }

    /// Returns true if `method` is for operators alone.
    #[must_use]
    pub fn is_for_operators(&self, method: &MethodDescriptor) -> bool {
        self.session.router.is_for_operators(method)
    }

    /// Returns true if the client is an operator. One at a loopback address is none unless
    /// `names_own_host`: a browser there also speaks for pages of other sites.
    pub fn admits_operator(&self, names_own_host: impl FnOnce() -> bool) -> bool {
        let addresses = &self.session.peer.addresses;
        let is_named = || addresses.peer.is_none() || addresses.tls.is_some() || names_own_host();
        self.session.router.admits(addresses) && is_named()
    }

    /// Logs a call that was refused before its message was read. It has no `method` where the
    /// server has none of its name.
    pub fn log_refusal(&self, method: Option<&'static MethodDescriptor>, status: &Status) {
        let session = &*self.session;
        if let Some(record) = CallRecord::begin_early(session.router.rules.log(), method, None) {
            record.log_unanswered(session.in_flight.lines(), status.code(), status.message());
        }
    }

    /// Returns the time limit of a call that has come now: the client's timeout, or the server's
    /// `unary_timeout` if that is shorter and the call is unary.
    #[must_use]
    pub fn time_limit(&self, kind: CallKind, timeout: Option<Duration>) -> EarlyLimit {
        let client = timeout.map(|timeout| Deadline::after(Instant::now(), timeout));
        let own = self.session.router.rules.unary_timeout();
        EarlyLimit(TimeLimit::early(client.zip(timeout), kind, own))
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
