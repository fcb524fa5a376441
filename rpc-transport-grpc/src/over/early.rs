//! Admission and time limits of calls whose message has not yet arrived.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use rpc_core::server::{Admission, EarlyLimit, EarlyPermit};
use rpc_core::{CallKind, MethodDescriptor};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

/// Admits calls before their message has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Early {
    /// Absent in tests, which admit every call.
    admission: Option<Admission>,
    /// Maximum time until the next part of a message arrives.
    part_timeout: Duration,
}

/// A call that waits for its message.
#[derive(Debug)]
pub(super) struct Waiting {
    permit: Option<EarlyPermit>,
    limit: Option<EarlyLimit>,
    part_timeout: Duration,
    /// Latest instant at which the next part may arrive.
    part_due: Instant,
    /// Fires at the earlier of the two limits, or before it.
    timer: Pin<Box<Sleep>>,
}

impl Early {
    pub(crate) fn new(admission: Admission, part_timeout: Duration) -> Self {
        Self { admission: Some(admission), part_timeout }
    }

    /// Admits every call.
    #[cfg(test)]
    pub(crate) fn for_tests(part_timeout: Duration) -> Self {
        Self { admission: None, part_timeout }
    }

    /// Takes a permit for a call. `timeout` is the client's, counted from now.
    ///
    /// # Errors
    ///
    /// Returns the status of the refusal if the server refuses the call.
    pub(super) fn admit(
        &self,
        method: &'static MethodDescriptor,
        timeout: Option<Duration>,
    ) -> Result<Waiting, Status> {
        let Self { admission, part_timeout } = self;
        let permit = admission.as_ref().map(|it| it.admit(method, timeout)).transpose()?;
        let limit = admission.as_ref().map(|it| it.time_limit(method.kind, timeout));
        Ok(Waiting::new(permit, limit, *part_timeout))
    }

    /// Returns true if the client sees `method`. `is_operator` is called for those of operators
    /// alone.
    pub(crate) fn shows(
        &self,
        method: &MethodDescriptor,
        is_operator: impl FnOnce() -> bool,
    ) -> bool {
        let Some(admission) = &self.admission else { return true };
        !admission.is_for_operators(method) || is_operator()
    }

    /// Returns true if the client is an operator.
    pub(crate) fn admits_operator(&self, names_own_host: impl FnOnce() -> bool) -> bool {
        self.admission.as_ref().is_some_and(|it| it.admits_operator(names_own_host))
    }

    /// Logs a call that the server refused before it read the message.
    pub(crate) fn log_refusal(&self, method: Option<&'static MethodDescriptor>, status: &Status) {
        if let Some(admission) = &self.admission {
            admission.log_refusal(method, status);
        }
    }
}

impl Waiting {
    fn new(permit: Option<EarlyPermit>, limit: Option<EarlyLimit>, part_timeout: Duration) -> Self {
        let part_due = Instant::now() + part_timeout;
        let timer = Box::pin(sleep(Duration::ZERO));
        let mut waiting = Self { permit, limit, part_timeout, part_due, timer };
        waiting.set_timer();
        waiting
    }

    /// Releases the permit of a call whose message has arrived.
    pub(super) fn complete(self) {
        if let Some(permit) = self.permit {
            permit.complete();
        }
    }

    /// Releases the permit of a call whose message is late, and logs `status`.
    pub(super) fn fail(self, status: &Status) {
        if let Some(permit) = self.permit {
            permit.fail(status);
        }
    }

    /// Restarts the time for the next part.
    pub(super) fn restart(&mut self) {
        // Leaves the timer as it is. It fires early, and `poll_late` sets it again.
        self.part_due = Instant::now() + self.part_timeout;
    }

    /// Waits until a limit is exceeded. Returns the status of the call.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        while self.timer.poll_unpin(cx).is_ready() {
            let now = Instant::now();
            if let Some(limit) = self.limit
                && limit.deadline().is_some_and(|deadline| deadline.0 <= now)
            {
                return Poll::Ready(limit.exceeded());
            }
            if self.part_due <= now {
                return Poll::Ready(Status::deadline_exceeded(format!(
                    "the rest of the request's message did not arrive within {:?} (the server's \
                     handshake_timeout)",
                    self.part_timeout
                )));
            }
            self.set_timer();
        }
        Poll::Pending
    }

    fn set_timer(&mut self) {
        let deadline = self.limit.and_then(EarlyLimit::deadline).map(|it| it.0);
        let due = deadline.map_or(self.part_due, |it| it.min(self.part_due));
        self.timer.as_mut().reset(due);
    }
}

/// Returns true if calls of this kind have exactly one request message.
pub(super) fn has_one_request(kind: CallKind) -> bool {
    matches!(kind, CallKind::Unary | CallKind::ServerStreaming)
}
