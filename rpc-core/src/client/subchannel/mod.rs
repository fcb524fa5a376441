//! A subchannel: the connections to one server, one after another, and calls over them.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use tonic::Status;

mod call;

pub(in crate::client) use self::call::CallFuture;
use super::attempts::SharedAttempts;
use super::call::begun::Begun;
use super::call::rules::CallRules;
use super::call::rules::within;
use super::connection_manager::ConnectionManager;
use super::{Call, CallDeadline, Caller, ClientReply, Connect, Established};
use crate::balance::{Endpoint, EndpointStatus};
use crate::connect::with_retry;
use crate::{Deadline, NotExecuted, Readiness};

/// The connections to one server, made when a call needs one. Clones share them. They close with
/// the last clone and the last stream of responses.
#[derive(Debug, Clone)]
pub struct Subchannel {
    pub(in crate::client) manager: Arc<ConnectionManager>,
    /// Set where connections speak another protocol and take encoded calls.
    is_encoded: bool,
}

impl Subchannel {
    /// Returns a subchannel that connects through `connector` at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let manager = Arc::new(ConnectionManager::new(connector));
        Self { is_encoded: manager.is_encoded(), manager }
    }

    /// Returns true if its connections have sessions, which take calls without encoding them first.
    pub(in crate::client) fn has_sessions(&self) -> bool {
        !self.is_encoded
    }

    /// Returns the way of calls by `rules` over this subchannel, which makes them again by itself;
    /// `shared` are the attempts of the levels above.
    pub(in crate::client) fn route<'a>(
        &'a self,
        rules: &'a CallRules,
        shared: Option<&'a SharedAttempts>,
    ) -> Route<'a> {
        Route { subchannel: self, rules, shared }
    }

    /// Completes the status of an endpoint by what the connection says.
    pub(in crate::client) fn describe(&self, status: &mut EndpointStatus) {
        status.path = self.manager.path();
        let counts = self.manager.path_counts();
        (status.failovers, status.failbacks) = (counts.failovers, counts.failbacks);
        status.info = self.manager.info();
    }

    /// Describes its server as the only one of a channel.
    pub(in crate::client) fn status(&self) -> EndpointStatus {
        let endpoint = Endpoint::new(self.manager.address());
        let mut status = EndpointStatus::single(endpoint, self.manager.connectivity());
        self.describe(&mut status);
        let in_flight = status.info.as_ref().map_or(0, |info| info.calls_in_flight);
        status.in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        status
    }

    /// Waits for a connection, for a call that found none.
    async fn connection(
        &self,
        readiness: Readiness,
        limit: Option<&CallDeadline>,
    ) -> Result<Established, Status> {
        loop {
            let error = match self.manager.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            // Looked up after the failure, which has set it.
            let due = Instant::from_std(self.manager.next_connect());
            if readiness == Readiness::FailFast || !error.may_pass() {
                let retry_in = due.saturating_duration_since(Instant::now());
                let retry_in = error.may_pass().then_some(retry_in);
                return Err(error.into_status(retry_in));
            }
            if let Some(limit) = limit
                && let Deadline(deadline) = limit.deadline()
                && deadline <= due
            {
                // No attempt begins before it is due, whichever call asks for it.
                tokio::time::sleep_until(deadline).await;
                let retry_in = due.saturating_duration_since(Instant::now());
                let error = with_retry(&error.reason(), retry_in);
                return Err(NotExecuted::mark(limit.exceeded_unconnected(&error)));
            }
            // All callers that wait wake up at this time and share one attempt: the manager answers
            // every request made before its end.
            tokio::time::sleep_until(due).await;
        }
    }
}

/// A subchannel and the rules of the calls that take it.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct Route<'a> {
    subchannel: &'a Subchannel,
    rules: &'a CallRules,
    shared: Option<&'a SharedAttempts>,
}

impl Caller for Route<'_> {
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let call = match !call.is_untyped() && self.subchannel.has_sessions() {
            true => CallFuture::over_session(*self, call),
            false => CallFuture::boxed(self.call_otherwise(call)),
        };
        call.make()
    }
}

impl Route<'_> {
    /// Makes a call that is not a stub's over a session.
    async fn call_otherwise(self, call: Call<'_>) -> Result<ClientReply, Status> {
        match self.subchannel.has_sessions() {
            true => self.call_untyped(call).await,
            false => self.call_encoded(call).await,
        }
    }

    /// Makes a call whose request came as a stream, and whose kind may be the server's to say.
    async fn call_untyped(self, mut call: Call<'_>) -> Result<ClientReply, Status> {
        let (began, has_own_limit) = (Instant::now(), call.has_own_limit());
        let default = |kind| {
            let timeout = self.rules.timeout_of(kind).filter(|_| !has_own_limit);
            timeout.map(|(timeout, set_by)| CallDeadline::after(began, timeout, set_by))
        };
        // From here on it is an instant, which waiting for the message does not move.
        call.settle_limit(&CallRules::DEFAULT);
        let limits = [call.layers_limit(), default(call.method().kind())];
        let limit = CallDeadline::earliest(limits.into_iter().flatten());
        let typed = within(limit.as_ref(), self.make_typed(&mut call, limit.as_ref())).await;
        if let Err(status) = typed {
            let begun = Begun::new(self.rules, &mut call).since(began);
            return begun.finish(call.method(), &self.subchannel.manager, Err(status));
        }
        // The kind is known now. The timeout counts from the beginning, the wait for the kind
        // included.
        if let Some(limit) = default(call.method().kind()) {
            call.bring_nearer(limit);
        }
        CallFuture::<std::future::Ready<_>>::over_session(self, call).make().await
    }

    /// Asks for the kind of a method that is known by its path alone, and makes one message of a
    /// stream where the method takes one.
    async fn make_typed(
        self,
        call: &mut Call<'_>,
        limit: Option<&CallDeadline>,
    ) -> Result<(), Status> {
        if !call.method().is_described() {
            let connection = match self.subchannel.manager.open() {
                Some(connection) => connection,
                None => self.subchannel.connection(call.readiness(self.rules), limit).await?,
            };
            let described = connection.into_session()?.method(call.method().path());
            call.set_method(described.map_err(NotExecuted::mark)?);
        }
        call.make_typed().await
    }
}
