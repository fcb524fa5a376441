//! A call that a channel has begun, from its caller's request to its end.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Status;

use crate::call::log::FailedCall;
use crate::call::options::CallOptions;
use crate::call::options::MessageLimits;
use crate::call::refusal;
use crate::client::call::CallMeter;
use crate::client::call::rules::CallRules;
use crate::client::call::rules::SetBy;
use crate::client::connection_manager::ConnectionManager;
use crate::client::{Call, CallDeadline};
use crate::deadline::take_grpc_timeout;
use crate::stream::Receiving;
use crate::{Deadline, Method};

/// The facts about a call that are known from its beginning.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct Begun {
    /// Time at which it began. Absent if no line will be written about its end.
    at: Option<Instant>,
    deadline: Option<CallDeadline>,
    /// Limits of its stub on its messages.
    limits: MessageLimits,
}

/// Logs failures found while decoding, after the channel has handed the reply to the stub.
#[derive(Debug)]
pub(in crate::client) struct EndLog {
    method: Method,
    began_at: Instant,
    manager: Arc<ConnectionManager>,
}

impl EndLog {
    /// Records that the call ends with this status.
    pub(in crate::client) fn log_failure(&self, status: &Status) {
        log_failure(&self.method, self.began_at, &self.manager, status);
    }
}

/// `Begun` plus a handle that keeps the channel open while a response stream is read.
#[derive(Debug)]
pub(in crate::client) struct BegunWithin {
    call: Begun,
    method: Method,
    manager: Arc<ConnectionManager>,
    meter: CallMeter,
}

impl Begun {
    /// Begins `call`, whose timeout it takes out of the metadata.
    ///
    /// The earliest counts of what the call says, or `rules` where it says nothing, of what is
    /// inherited, and of the layers' limit. The clock is looked at only where there is one, or
    /// where the call's end may be logged.
    #[inline(always)]
    pub(in crate::client) fn new(rules: &CallRules, call: &mut Call<'_>) -> Self {
        // The clock is read only where the end of the call may have a line.
        let at = rules.log().needs_start().then(Instant::now);
        let limits = call.options().map_or(MessageLimits::NONE, CallOptions::limits);
        let explicit = call.extensions().get::<Deadline>().copied();
        let own = take_grpc_timeout(call.metadata_mut()).map(|own| (own, SetBy::Request));
        // The metadata goes on without it: the deadline travels in the header of the frame.
        let timeout = match own {
            Some(own) => Some(own),
            None => call.default_timeout(rules),
        };
        let deadline = CallDeadline::resolve(call.layers_limit(), timeout, explicit, at);
        Self { at, deadline, limits }
    }

    /// The same call, which had begun earlier.
    pub(in crate::client) fn since(mut self, began: Instant) -> Self {
        // A call without a line needs no time, the earlier one neither.
        self.at = self.at.map(|at| at.min(began));
        self
    }

    /// Returns the deadline of the call.
    pub(in crate::client) fn deadline(&self) -> Option<&CallDeadline> {
        self.deadline.as_ref()
    }

    /// Returns the limits of its stub on its messages.
    pub(in crate::client) fn limits(&self) -> MessageLimits {
        self.limits
    }

    /// Returns the limits on each message of the response to a call of `method`.
    pub(in crate::client) fn receiving(&self, method: &Method) -> Receiving {
        Receiving { limit: self.limits.responses(), method: method.clone() }
    }

    /// Returns the log of the call's end after the channel's part. `None` if no line is written.
    pub(in crate::client) fn end_log(
        &self,
        method: &Method,
        manager: &Arc<ConnectionManager>,
    ) -> Option<EndLog> {
        // A reply whose failure has no line carries nothing.
        let began_at = self.at?;
        Some(EndLog { method: method.clone(), began_at, manager: Arc::clone(manager) })
    }

    /// This call of `method` with its channel's connection and what is counted of it.
    pub(in crate::client) fn within(
        self,
        method: &Method,
        manager: &Arc<ConnectionManager>,
        meter: CallMeter,
    ) -> BegunWithin {
        BegunWithin { call: self, method: method.clone(), manager: Arc::clone(manager), meter }
    }

    /// Takes what became of the first answer to a call of `method`: a failure is logged.
    pub(in crate::client) fn finish<T>(
        &self,
        method: &Method,
        manager: &ConnectionManager,
        result: Result<T, Status>,
    ) -> Result<T, Status> {
        if let Err(status) = &result {
            self.log_failure(method, manager, status);
        }
        result
    }

    fn log_failure(&self, method: &Method, manager: &ConnectionManager, status: &Status) {
        // The log of failed calls is off, or the call was begun without it.
        let Some(at) = self.at else { return };
        log_failure(method, at, manager, status);
    }
}

fn log_failure(method: &Method, began_at: Instant, manager: &ConnectionManager, status: &Status) {
    let failed = FailedCall {
        method: method.path(),
        peer: &manager.address(),
        // Of the latest connection: the one that the call failed on may be replaced already.
        transport: manager.transport(),
        code: status.code(),
        message: status.message(),
        took: began_at.elapsed(),
    };
    failed.log(manager.log());
}

impl BegunWithin {
    /// Returns the deadline of the call.
    pub(in crate::client) fn deadline(&self) -> Option<Deadline> {
        self.call.deadline.map(|limit| limit.deadline())
    }

    /// Returns the limits on each message of its response.
    pub(in crate::client) fn receiving(&self) -> Receiving {
        self.call.receiving(&self.method)
    }

    /// The status of the call when it is over its time.
    pub(in crate::client) fn over_time(&self) -> Status {
        self.call.deadline.map_or_else(refusal::deadline_exceeded, |limit| limit.exceeded())
    }

    /// Returns what is counted of the call, to be changed.
    pub(in crate::client) fn meter_mut(&mut self) -> &mut CallMeter {
        &mut self.meter
    }

    /// Records that the stream of responses ends with this status.
    pub(in crate::client) fn log_failure(&self, status: &Status) {
        self.call.log_failure(&self.method, &self.manager, status);
    }
}
