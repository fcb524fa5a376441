//! A subchannel: the connections to one server, and calls over them.
//!
//! There is one connection at a time, or with `per_runtime` one for each runtime that makes calls.
//! The tasks of a connection run on the runtime that made it. On a runtime of one thread, callers
//! and connection then share that thread, and no call crosses to another.

use std::borrow::Cow;
use std::cell::Cell;
use std::future::Future;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
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

/// Maximum number of runtimes that have a connection of their own, in one subchannel. One runtime
/// per core of a large host is a quarter of it. Calls of further runtimes share the first
/// connection, so that a program that starts runtimes without end does not connect without end.
const RUNTIMES_MAX: usize = 1024;

/// The connections to one server, made when a call needs one. Clones share them. They close with
/// the last clone and the last stream of responses.
#[derive(Debug, Clone)]
pub struct Subchannel {
    /// The manager of the only connection. With `runtimes`, the one of the first runtime, which
    /// threads without a runtime use, too.
    pub(in crate::client) manager: Arc<ConnectionManager>,
    /// Set where connections speak another protocol and take encoded calls.
    is_encoded: bool,
    /// Present where each runtime has a connection of its own.
    runtimes: Option<Arc<Runtimes>>,
}

impl Subchannel {
    /// Returns a subchannel that connects through `connector` at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let manager = Arc::new(ConnectionManager::new(connector));
        let runtimes = manager.is_per_runtime().then(Arc::default);
        Self { is_encoded: manager.is_encoded(), manager, runtimes }
    }

    /// Returns the subchannel whose manager serves the current runtime.
    ///
    /// A thread without a runtime uses the first connection. It can call over one that is open, as
    /// over that of any channel, and cannot make one.
    #[inline]
    pub(in crate::client) fn here(&self) -> Cow<'_, Self> {
        match &self.runtimes {
            None => Cow::Borrowed(self),
            Some(runtimes) => match Runtimes::manager(runtimes, &self.manager) {
                Some(manager) => {
                    Cow::Owned(Self { manager, is_encoded: self.is_encoded, runtimes: None })
                }
                None => Cow::Borrowed(self),
            },
        }
    }

    /// Returns the managers of all its connections, the first one's included.
    pub(in crate::client) fn managers(&self) -> Vec<Arc<ConnectionManager>> {
        let first = Arc::clone(&self.manager);
        let Some(runtimes) = &self.runtimes else { return vec![first] };
        let owned = runtimes.owned.load();
        let others = owned.iter().map(|owned| &owned.manager);
        let others = others.filter(|manager| !Arc::ptr_eq(manager, &first)).cloned();
        std::iter::once(Arc::clone(&first)).chain(others).collect()
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
        Route { subchannel: self.here(), rules, shared }
    }

    /// Completes the status of an endpoint by what the connection says.
    pub(in crate::client) fn describe(&self, status: &mut EndpointStatus) {
        let here = self.here();
        status.path = here.manager.path();
        let counts = here.manager.path_counts();
        (status.failovers, status.failbacks) = (counts.failovers, counts.failbacks);
        status.info = here.manager.info();
    }

    /// Describes its server as the only one of a channel.
    pub(in crate::client) fn status(&self) -> EndpointStatus {
        let endpoint = Endpoint::new(self.manager.address());
        let mut status = EndpointStatus::single(endpoint, self.here().manager.connectivity());
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

thread_local! {
    /// The place of this thread's runtime in the list of the subchannel that it called last. Most
    /// programs call from the same runtimes over all channels, so that it is right for the next
    /// one, too.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

/// The connections of a subchannel, one for each runtime that makes calls.
#[derive(Debug, Default)]
struct Runtimes {
    /// Replaced as a whole under `changing`. Callers read it without a lock.
    owned: ArcSwap<Vec<Owned>>,
    changing: Mutex<()>,
    /// Ends the tasks that report the end of a runtime. Set when this is dropped.
    gone: CancellationToken,
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

/// A runtime and the manager of its connection.
#[derive(Debug, Clone)]
struct Owned {
    runtime: runtime::Id,
    manager: Arc<ConnectionManager>,
}

impl Runtimes {
    /// Returns the manager of the current runtime; `None` without a runtime. Beyond the maximum
    /// number of runtimes it is `first`.
    fn manager(this: &Arc<Self>, first: &Arc<ConnectionManager>) -> Option<Arc<ConnectionManager>> {
        let runtime = Handle::try_current().ok()?;
        let id = runtime.id();
        let is_own = |owned: &Owned| owned.runtime == id;
        let owned = this.owned.load();
        // A thread may enter another runtime at any time: the place is a guess.
        let place = PLACE.get();
        if let Some(owned) = owned.get(place).filter(|owned| is_own(owned)) {
            return Some(Arc::clone(&owned.manager));
        }
        Some(match owned.iter().position(is_own) {
            Some(place) => {
                PLACE.set(place);
                Arc::clone(&owned[place].manager)
            }
            None if owned.len() >= RUNTIMES_MAX => Arc::clone(first),
            None => Self::enter(this, &runtime, first),
        })
    }

    /// Adds the runtime. The first one gets the manager that is there.
    #[cold]
    fn enter(
        this: &Arc<Self>,
        runtime: &Handle,
        first: &Arc<ConnectionManager>,
    ) -> Arc<ConnectionManager> {
        let id = runtime.id();
        let manager = this.change(|owned| {
            // Another thread of this runtime may have come first.
            if let Some(owned) = owned.iter().find(|owned| owned.runtime == id) {
                return Ok(Arc::clone(&owned.manager));
            }
            if owned.len() >= RUNTIMES_MAX {
                return Ok(Arc::clone(first));
            }
            let is_taken = owned.iter().any(|owned| Arc::ptr_eq(&owned.manager, first));
            let manager = if is_taken { Arc::new(first.sibling()) } else { Arc::clone(first) };
            owned.push(Owned { runtime: id, manager: Arc::clone(&manager) });
            Err(manager)
        });
        let manager = match manager {
            Ok(present) => return present,
            Err(added) => added,
        };
        // After the entry and outside of the lock: a runtime that is ending drops the task at
        // once, and its guard removes the entry.
        let leaving = Leaving { runtimes: Arc::downgrade(this), runtime: id };
        let gone = this.gone.clone();
        runtime.spawn(async move {
            let _leaving = leaving;
            gone.cancelled().await;
        });
        manager
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Owned>) -> T) -> T {
        let _turn = self.changing.lock();
        let mut owned = Vec::clone(&self.owned.load());
        let changed = change(&mut owned);
        self.owned.store(Arc::new(owned));
        changed
    }
}

/// Removes a runtime when it is dropped, which its end does with the task that holds this. Another
/// runtime may have the same id later.
struct Leaving {
    runtimes: Weak<Runtimes>,
    runtime: runtime::Id,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(runtimes) = self.runtimes.upgrade() else { return };
        // The manager closes its connection when it is dropped, which is after the lock.
        let _left = runtimes.change(|owned| {
            let place = owned.iter().position(|owned| owned.runtime == self.runtime);
            place.map(|place| owned.swap_remove(place))
        });
    }
}

/// A subchannel and the rules of the calls that take it.
#[derive(Debug, Clone)]
pub(in crate::client) struct Route<'a> {
    subchannel: Cow<'a, Subchannel>,
    rules: &'a CallRules,
    shared: Option<&'a SharedAttempts>,
}

impl Caller for Route<'_> {
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let call = match !call.is_untyped() && self.subchannel.has_sessions() {
            true => CallFuture::over_session(self.clone(), call),
            false => CallFuture::boxed(self.clone().call_otherwise(call)),
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
        &self,
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
