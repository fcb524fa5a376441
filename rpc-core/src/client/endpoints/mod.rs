//! A channel with many endpoints: each call goes to one of them.
//!
//! `resolve` tells the endpoints, `driver` keeps them connected, `shared` has what callers look at;
//! [`crate::balance`] decides.

mod driver;
mod link;
mod resolve;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use driver::Driver;
use link::EndpointLink;
pub use resolve::{Refresh, Resolve, ResolveError, StaticEndpoints};
use shared::{Counted, Shared, now};

use super::attempts::{AttemptPath, LevelAttempts, Servers, SharedAttempts, drive};
use super::subchannel::Subchannel;
use super::{Call, CallDeadline, CallRules, Caller, ClientReply};
use crate::balance::{
    BalanceConfig, Connectivity, Endpoint, EndpointId, EndpointStatus, Pick, Roster,
};
use crate::connect::{ConnectError, ConnectFault};
use crate::{EndpointPick, Explain, NotExecuted, Readiness};

/// The hash key of a call for [`crate::balance::Policy::ConsistentHash`], as an extension.
///
/// # Examples
///
/// ```
/// use farcall::Request;
/// use farcall::balance::HashKey;
///
/// let mut request = Request::new("cart 17");
/// request.extensions_mut().insert(HashKey(17));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKey(pub u64);

/// Many servers of the same services, each call to one. Clones share the connections.
///
/// A call that no endpoint has executed goes to another one, three attempts in all, unless its
/// requests are a stream. One that may have been executed goes to another one once, if its method
/// is idempotent by its `.proto` and the endpoint's budget of replays has room.
///
/// Calls that come before the first endpoint is connected wait for it. When no attempt has
/// succeeded, calls fail at once with `UNAVAILABLE` and the reason of the last failure, or wait
/// ([`Readiness`]). When the runtime of the task that connects ends, the next call has it connect
/// again on its own runtime.
#[derive(Clone, Debug)]
pub struct Endpoints {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    shared: Arc<Shared<EndpointLink>>,
    /// Ends the task that resolves and connects. A call starts it, since a call has a runtime.
    gone: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Endpoints {
    /// Returns the endpoints that `resolver` lists. `make` makes the subchannel to one of them.
    /// Nothing is resolved before the first call.
    #[must_use]
    pub fn new(
        resolver: impl Resolve,
        config: BalanceConfig,
        make: impl Fn(&Endpoint) -> Subchannel + Send + 'static,
    ) -> Self {
        let name = resolver.name().into();
        let health_check = config.health_check.clone();
        let make =
            move |endpoint: &Endpoint| EndpointLink::new(make(endpoint), health_check.as_deref());
        let roster = Roster::new(config, fastrand::u64(..), now());
        let shared = Arc::new(Shared::new(roster, Box::new(Driver::new(Box::new(resolver), make))));
        let inner = Arc::new(Inner { name, shared, gone: CancellationToken::new() });
        Self { inner }
    }

    /// Returns the first endpoint of the list that is connected.
    pub(super) fn first_connected(&self) -> Option<Subchannel> {
        self.inner.shared.first_connected().map(|link| link.subchannel)
    }

    /// Resolves and connects now, until one endpoint is connected.
    ///
    /// # Errors
    ///
    /// Returns the reason of the last failure, when no endpoint could be connected to.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the channel goes on to connect.
    pub async fn connected(&self) -> Result<(), Arc<str>> {
        let wish = Wish { key: None, readiness: Readiness::FailFast, deadline: None };
        match self.pick(wish, &[], None).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.failure().unwrap_or_else(|| "it has no endpoints".into())),
        }
    }

    /// Why no endpoint is connected, as far as is known.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<str>> {
        self.inner.shared.failure()
    }

    /// Returns the time until the next attempt to connect or to resolve. `None` if none is
    /// scheduled.
    #[must_use]
    pub fn retry_in(&self) -> Option<Duration> {
        let due = self.inner.shared.look(|state| state.retry_at)?;
        Some(due.saturating_duration_since(now()))
    }

    /// Returns the status of each endpoint, in the order of the list.
    #[must_use]
    pub fn status(&self) -> Vec<EndpointStatus> {
        self.inner.shared.look(|state| {
            let mut status = state.roster.status();
            for (status, link) in status.iter_mut().zip(state.roster.handles()) {
                link.subchannel.describe(status);
            }
            status
        })
    }

    /// The state of the channel as a whole: the best of its endpoints'.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.inner.shared.connectivity()
    }

    /// Waits until [`connectivity`](Self::connectivity) is another than `state`, and returns it.
    /// The first such wait begins to connect.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        let mut changes = self.inner.shared.changes();
        loop {
            // Again after each change: the runtime of the driver may have ended.
            let is_driven = self.start();
            // Read after `start`, which leaves the endpoints idle where the runtime has ended.
            let now = self.connectivity();
            // The sender lives in what this handle shares.
            if now != state || !is_driven || changes.changed().await.is_err() {
                return now;
            }
        }
    }

    /// Starts the driver, unless it runs. False if the current runtime has ended.
    fn start(&self) -> bool {
        driver::start(&self.inner.shared, &self.inner.gone)
    }

    fn wish(rules: &CallRules, call: &Call<'_>) -> Wish {
        Wish {
            key: call.extensions().get().map(|HashKey(key)| *key),
            readiness: call.readiness(rules),
            deadline: call.layers_limit(),
        }
    }

    /// Picks an endpoint, once there is one.
    async fn pick(
        &self,
        wish: Wish,
        tried: &[EndpointId],
        explain: Option<&Explain>,
    ) -> Result<(Counted<EndpointLink>, Subchannel), Status> {
        let mut changes = None;
        loop {
            let (shared, now) = (&self.inner.shared, now());
            let picker = shared.picker();
            match picker.pick(fastrand::u64(..), wish.key, tried, now) {
                Pick::Endpoint { candidate, .. } => {
                    // A clone keeps the connection open for this call if the endpoint leaves the
                    // list.
                    let subchannel = candidate.handle.subchannel.here().into_owned();
                    if let Some(explain) = explain {
                        let (policy, candidates, in_flight) = picker.describe(candidate);
                        explain.picked(EndpointPick::new(policy, candidates, in_flight));
                    }
                    return Ok((Counted::new(shared, candidate, now), subchannel));
                }
                Pick::Fail if !self.waits(wish) => return Err(self.unavailable()),
                Pick::Wait | Pick::Fail => {}
            }
            // Subscribed before the picker is looked at again, so that no change is missed.
            let Some(changes) = &mut changes else {
                changes = Some(shared.changes());
                continue;
            };
            // After each change: the runtime of the driver may have ended.
            if !self.start() {
                return Err(
                    Arc::new(ConnectError::from(ConnectFault::RuntimeEnded)).into_status(None)
                );
            }
            let changed = changes.changed();
            match wish.deadline {
                None => drop(changed.await),
                Some(limit) => tokio::select! {
                    _ = changed => {}
                    () = sleep_until(limit.deadline().0) => {
                        return Err(self.deadline_exceeded(&limit));
                    }
                },
            }
        }
    }

    /// Returns true if a call waits while no attempt to connect succeeds. Before the first list has
    /// come, every call does.
    fn waits(&self, wish: Wish) -> bool {
        wish.readiness == Readiness::WaitForReady || self.inner.shared.failure().is_none()
    }

    fn unavailable(&self) -> Status {
        let Inner { name, shared, .. } = &*self.inner;
        let reason = shared.describe_failure("it has no endpoints");
        NotExecuted::mark(Status::unavailable(format!(
            "no endpoint of {name} is connected: {reason}"
        )))
    }

    fn deadline_exceeded(&self, limit: &CallDeadline) -> Status {
        let Inner { name, shared, .. } = &*self.inner;
        let reason = shared.describe_failure("none has connected yet");
        let error = format!("no endpoint of {name} is connected: {reason}");
        NotExecuted::mark(limit.exceeded_unconnected(&error))
    }
}

impl Endpoints {
    /// Makes a call, at one endpoint or, as far as it may be repeated, at one after another.
    pub(super) async fn call(
        &self,
        rules: &CallRules,
        mut call: Call<'_>,
    ) -> Result<ClientReply, Status> {
        // Before the pick: a wait for an endpoint counts, and all attempts share the rest.
        call.settle_limit(rules);
        let wish = Self::wish(rules, &call);
        // Another endpoint is better than the connection of a picked one that has just gone.
        let rules = CallRules { wait_for_ready: false, ..*rules };
        if wish.readiness == Readiness::WaitForReady {
            call.extensions_mut().insert(Readiness::FailFast);
        }
        let method = call.method().clone();
        let shared = call.extensions().get::<SharedAttempts>().cloned();
        let shared = shared.as_ref();
        let tried = shared.map_or_else(Vec::new, SharedAttempts::tried);
        let attempts = LevelAttempts::new(&method, Servers::Many, call.is_repeatable(), shared);
        let (endpoints, picked) = (self, None);
        drive(EndpointPath { endpoints, rules, wish, call, shared, tried, attempts, picked }).await
    }
}

/// Attempts at one endpoint or, as far as the call may be repeated, at one after another.
struct EndpointPath<'a> {
    endpoints: &'a Endpoints,
    rules: CallRules,
    wish: Wish,
    call: Call<'a>,
    shared: Option<&'a SharedAttempts>,
    /// The endpoints that attempts were sent to. The next one goes elsewhere if possible.
    tried: Vec<EndpointId>,
    attempts: LevelAttempts<'a>,
    /// The endpoint of the attempt.
    picked: Option<Subchannel>,
}

impl AttemptPath for EndpointPath<'_> {
    type Reply = ClientReply;

    async fn attempt(&mut self) -> Result<ClientReply, Status> {
        self.picked = None;
        let explain = self.call.extensions().get::<Explain>();
        let picked = self.endpoints.pick(self.wish, &self.tried, explain).await;
        let (mut counted, subchannel) = picked?;
        self.tried.push(counted.id());
        if let Some(shared) = self.shared {
            shared.push(counted.id());
        }
        let subchannel = self.picked.insert(subchannel);
        // Another endpoint is better than the same one again: its subchannel repeats nothing.
        let route = subchannel.route(&self.rules, Some(SharedAttempts::none()));
        let made = route.call(self.call.attempt()).await;
        // `counted` is dropped with this future, before the next pick: the load of an endpoint that
        // has failed must not count there.
        match made.as_ref().map_err(blame) {
            Ok(_) | Err(Blame::None) => counted.answered(now()),
            Err(Blame::Endpoint) => counted.failed(),
            Err(Blame::Caller) => {}
        }
        made
    }

    fn failed(&mut self, status: Status) -> Result<Duration, Status> {
        match &self.picked {
            // There was no endpoint to send it to.
            None => Err(self.attempts.final_status(status)),
            // The budget of the endpoint that failed.
            Some(subchannel) => self.attempts.failed(status, || subchannel.manager.take_replay()),
        }
    }
}

/// The properties of a call that a pick depends on.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// Key of a consistent hash.
    key: Option<u64>,
    readiness: Readiness,
    deadline: Option<CallDeadline>,
}

/// The party at fault for a status.
enum Blame {
    Endpoint,
    Caller,
    None,
}

fn blame(status: &Status) -> Blame {
    match status.code() {
        Code::Cancelled => Blame::Caller,
        Code::Unavailable | Code::Internal | Code::Unknown | Code::DataLoss => Blame::Endpoint,
        Code::DeadlineExceeded => Blame::Endpoint,
        // A limit that the server has met: others may have room.
        Code::ResourceExhausted if NotExecuted::matches(status) => Blame::Endpoint,
        _ => Blame::None,
    }
}
