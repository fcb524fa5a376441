//! Calls under the policies of a service config: attempts at a call, one after another or side by
//! side. Of those side by side, the first answer is the call's, and ends the others.
//!
//! [`ServiceConfig`] says what applies to a method, [`crate::policy::retry`] decides, and
//! [`PolicyAttempts`] makes the attempts through the channel, which picks an endpoint for each and
//! repeats by itself what no handler has seen. `drive` is the one loop of attempts. Its paths
//! lead through each other: a policy has the channel make an attempt, with metadata, a log line and
//! metrics of its own, and what was not executed is repeated below that, where nothing of the
//! attempt has to be made anew. All of them share one `SharedAttempts`, and ask it.

mod config;
mod machine;

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::metadata::MetadataValue;

use self::config::Budget;
use self::machine::Next;
use super::call::rules::SetBy;
use crate::balance::EndpointId;
use crate::call::log::NameOf;
use crate::client::{Call, CallRules, Caller, ClientCall, ClientReply};
use crate::metrics::{RetryKind, retried, retry_denied};
use crate::policy::retry::{
    ATTEMPTS_KEY, Failure, Hedges, Outcome, PUSHBACK_KEY, Pushback, Retries,
};
use crate::policy::retry_config::{Codes, HedgingPolicy};
use crate::wire::PeerText;
use crate::{Deadline, Explain, Idempotency, MayHaveExecuted, Method, NotExecuted, Readiness};

pub use self::config::{MethodConfig, ServiceConfig};
pub(in crate::client) use self::machine::{Attempts, Servers};

/// A service config at work: it makes the attempts that its policies ask for, and counts them
/// against the budget that all methods share.
#[derive(Debug)]
pub struct PolicyAttempts {
    config: ServiceConfig,
    budget: Budget,
}

impl PolicyAttempts {
    /// Makes calls by `config`.
    #[must_use]
    pub fn new(config: ServiceConfig) -> Self {
        let budget = Budget::new(config.budget());
        Self { config, budget }
    }

    /// The config.
    #[must_use]
    pub fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Makes a call through `caller`, whose own rules are `rules`, as the config says of its
    /// method.
    ///
    /// # Errors
    ///
    /// Returns the status of the last attempt. It is marked with [`MayHaveExecuted`] if one of them
    /// may have been executed and the last one was not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all attempts on their servers.
    pub async fn call<C: Caller>(
        &self,
        caller: &C,
        rules: &CallRules,
        mut call: Call<'_>,
    ) -> Result<ClientReply, Status> {
        let Some(config) = self.config.of(call.method().path()) else {
            return caller.call(call).await;
        };
        config.apply(&mut call);
        // All attempts share the call's time. A method whose kind is not known yet is called once.
        if call.method().is_described() {
            call.settle_limit(rules);
        }
        let has_promise = call.method().idempotency() != Idempotency::Unknown;
        let is_idempotent = config.idempotent || has_promise;
        let is_repeatable = call.is_repeatable();
        match (&config.retry, &config.hedging) {
            (Some(policy), None) if is_repeatable => {
                // Once a call, and not once an attempt: the budget is a part of the calls.
                self.budget.called();
                let shared = &insert_shared(&mut call);
                let retries = Retries::new(*policy, fastrand::u64(..));
                // A caller may take what it is given.
                let (call, codes) = (call.into_owned(), policy.retryable_codes);
                let budget = &self.budget;
                drive(PolicyRetries { caller, call, codes, retries, is_idempotent, shared, budget })
                    .await
            }
            // Attempts side by side may all be executed. A method without that promise is called
            // once.
            (None, Some(policy)) if is_repeatable && is_idempotent => {
                self.budget.called();
                let shared = insert_shared(&mut call);
                hedge(caller, call, policy, (&shared, &self.budget)).await
            }
            _ => caller.call(call).await,
        }
    }
}

impl MethodConfig {
    /// Gives a call what the config sets, where the call and its stub say nothing stricter.
    fn apply(&self, call: &mut Call<'_>) {
        if let Some(timeout) = self.timeout {
            call.limit_to(timeout, SetBy::MethodConfig);
        }
        let options = call.options().copied().unwrap_or_default();
        let is_silent =
            options.wait_for_ready().is_none() && call.extensions().get::<Readiness>().is_none();
        if self.wait_for_ready && is_silent {
            call.extensions_mut().insert(Readiness::WaitForReady);
        }
        if let Some(limits) = self.message_limits() {
            let limits = options.limits().stricter(limits);
            call.extensions_mut().insert(options.with_limits(limits));
        }
    }
}

/// A way of attempts at one call, and its rule for another one.
pub(in crate::client) trait AttemptPath: Send {
    /// The first answer to an attempt that ends well.
    type Reply: Send;

    /// Makes an attempt.
    ///
    /// # Errors
    ///
    /// Returns the status of the attempt.
    fn attempt(&mut self) -> impl Future<Output = Result<Self::Reply, Status>> + Send;

    /// Allows another attempt after one that ended with `status`, and returns the pause before it.
    ///
    /// # Errors
    ///
    /// Returns the final status of the call if there is none.
    fn failed(&mut self, status: Status) -> Result<Duration, Status>;
}

/// Makes a call: one attempt after another, as long as `path` allows the next one.
///
/// It is the only loop of attempts. Paths lead from a policy to the channel, from a channel of many
/// servers to one of them, and from a server to its connection. Each makes an attempt by the path
/// below, and all of them ask the same [`Attempts`], so that their bounds add up.
#[expect(clippy::manual_async_fn, reason = "its future would have room for the path twice")]
pub(in crate::client) fn drive<P: AttemptPath>(
    mut path: P,
) -> impl Future<Output = Result<P::Reply, Status>> + Send {
    async move {
        loop {
            let status = match path.attempt().await {
                Ok(reply) => return Ok(reply),
                Err(status) => status,
            };
            let pause = path.failed(status)?;
            if !pause.is_zero() {
                // In memory of its own: a timer would make the future of every call larger.
                Box::pin(tokio::time::sleep(pause)).await;
            }
        }
    }
}

/// The attempts at one call that several levels make again, or that run side by side. An extension
/// of the call, which its attempts share.
#[derive(Debug, Clone)]
pub(in crate::client) struct SharedAttempts(Arc<Mutex<AttemptsSoFar>>);

#[derive(Debug)]
struct AttemptsSoFar {
    attempts: Attempts,
    /// The endpoints that they were sent to. The next one goes elsewhere if possible.
    tried: Vec<EndpointId>,
}

impl SharedAttempts {
    pub(in crate::client) fn new(attempts: Attempts) -> Self {
        Self(Arc::new(Mutex::new(AttemptsSoFar { attempts, tried: Vec::new() })))
    }

    /// Returns those of a level that makes no call again.
    pub(in crate::client) fn none() -> &'static Self {
        // One for all callers: it allows no second attempt, so that nothing in it changes.
        static NONE: LazyLock<SharedAttempts> =
            LazyLock::new(|| SharedAttempts::new(Attempts::none()));
        &NONE
    }

    fn lock(&self) -> MutexGuard<'_, AttemptsSoFar> {
        self.0.lock()
    }

    /// Returns the endpoints that attempts were sent to.
    pub(in crate::client) fn tried(&self) -> Vec<EndpointId> {
        self.lock().tried.clone()
    }

    /// Records an endpoint that an attempt is sent to.
    pub(in crate::client) fn push(&self, id: EndpointId) {
        self.lock().tried.push(id);
    }

    /// Changes or reads the attempts.
    pub(in crate::client) fn with<T>(&self, change: impl FnOnce(&mut Attempts) -> T) -> T {
        change(&mut self.lock().attempts)
    }
}

/// The attempts as one level sees them: its own, unless the levels above share theirs.
#[derive(Debug)]
pub(in crate::client) struct LevelAttempts<'a> {
    method: &'a Method,
    servers: Servers,
    own: Attempts,
    shared: Option<&'a SharedAttempts>,
}

impl<'a> LevelAttempts<'a> {
    pub(in crate::client) fn new(
        method: &'a Method,
        servers: Servers,
        is_repeatable: bool,
        shared: Option<&'a SharedAttempts>,
    ) -> Self {
        Self { method, servers, own: Attempts::new(method, is_repeatable), shared }
    }

    /// Allows another attempt after one that failed, and returns the pause before it. `take_replay`
    /// takes one replay from the budget of the server.
    ///
    /// # Errors
    ///
    /// Returns the final status of the call if there is none.
    pub(in crate::client) fn failed(
        &mut self,
        status: Status,
        take_replay: impl FnOnce() -> bool,
    ) -> Result<Duration, Status> {
        let method = self.method;
        let take_replay = || {
            let is_allowed = take_replay();
            if !is_allowed {
                retry_denied(method, RetryKind::Replay);
            }
            is_allowed
        };
        let next = match self.shared {
            None => self.own.failed(status, self.servers, take_replay),
            Some(shared) => {
                shared.with(|attempts| attempts.failed(status, self.servers, take_replay))
            }
        };
        match next {
            Next::Again { status, delay } => {
                if MayHaveExecuted::matches(&status) {
                    retried(self.method, RetryKind::Replay);
                    log_replay(self.method, &status);
                } else {
                    retried(self.method, RetryKind::NotExecuted);
                }
                Ok(delay)
            }
            Next::End(status) => Err(status),
        }
    }

    /// Returns the status of a call of which no attempt could be made.
    pub(in crate::client) fn final_status(&self, status: Status) -> Status {
        match self.shared {
            None => self.own.final_status(status),
            Some(shared) => shared.with(|attempts| attempts.final_status(status)),
        }
    }
}

/// Returns the facts about a status that a policy needs.
fn failure(status: &Status, is_idempotent: bool) -> Failure {
    let pushback = status.metadata().get(PUSHBACK_KEY).map(MetadataValue::as_encoded_bytes);
    Failure {
        code: status.code(),
        pushback: Pushback::read(pushback),
        is_repeatable: is_idempotent || NotExecuted::matches(status),
    }
}

/// Takes an attempt's end into account.
fn count(budget: &Budget, codes: Codes, result: Result<(), (&Status, &Failure)>) {
    match result {
        Ok(()) => budget.succeeded(),
        // No handler has seen it: it says nothing of the server's load.
        Err((status, _)) if NotExecuted::matches(status) => {}
        Err((_, failure)) if failure.counts(codes) => budget.failed(),
        Err(_) => budget.succeeded(),
    }
}

/// Gives a call the machine that counts the attempts of all levels.
fn insert_shared(call: &mut Call<'_>) -> SharedAttempts {
    let shared = SharedAttempts::new(Attempts::new(call.method(), true));
    // An extension: `Caller::call` has no other argument to hand it down with.
    call.extensions_mut().insert(shared.clone());
    shared
}

/// Tells the server how many attempts preceded this one.
fn mark_attempt(call: &mut Call<'_>, previous: u32) {
    if previous > 0 {
        call.metadata_mut().insert(ATTEMPTS_KEY, previous.into());
    }
}

/// Returns true if a delay ends before the call does. Waiting longer would replace a reason by
/// `DEADLINE_EXCEEDED`.
fn is_in_time(deadline: Option<Deadline>, delay: Duration) -> bool {
    deadline.is_none_or(|deadline| Instant::now() + delay < deadline.0)
}

/// Logs a replay.
fn log_replay(method: &Method, status: &Status) {
    let (method, reason) = (method.path(), PeerText::new(status.message()));
    let code = NameOf(status.code());
    tracing::debug!(target: "farcall::call", method, %code, %reason, "replayed");
}

/// Attempts by a retry policy at a call whose request is one message.
struct PolicyRetries<'a, C> {
    caller: &'a C,
    /// The attempts share the request.
    call: ClientCall,
    codes: Codes,
    retries: Retries,
    is_idempotent: bool,
    shared: &'a SharedAttempts,
    budget: &'a Budget,
}

impl<C: Caller> AttemptPath for PolicyRetries<'_, C> {
    type Reply = ClientReply;

    async fn attempt(&mut self) -> Result<ClientReply, Status> {
        let mut attempt = self.call.try_clone().expect("its request is one message").into_call();
        mark_attempt(&mut attempt, self.retries.previous());
        let made = self.caller.call(attempt).await;
        if made.is_ok() {
            count(self.budget, self.codes, Ok(()));
        }
        made
    }

    fn failed(&mut self, status: Status) -> Result<Duration, Status> {
        let failure = failure(&status, self.is_idempotent);
        count(self.budget, self.codes, Err((&status, &failure)));
        let (deadline, method, budget) = (self.call.deadline(), self.call.method(), self.budget);
        let allows =
            // In this order: an attempt that would come too late costs the budget nothing.
            |delay| is_in_time(deadline, delay) && budget.take_for(method, RetryKind::Policy);
        let retries = &mut self.retries;
        let next = self.shared.with(|it| it.retry(status, retries, &failure, allows));
        let (status, delay) = match next {
            Next::Again { status, delay } => (status, delay),
            Next::End(status) => return Err(status),
        };
        let (path, code, attempt) = (method.path(), NameOf(status.code()), self.retries.previous());
        retried(method, RetryKind::Policy);
        tracing::debug!(
            target: "farcall::call", method = path, %code, attempt, after = ?delay, "retried"
        );
        Ok(delay)
    }
}

/// Makes a call whose request is one message, by attempts side by side.
async fn hedge<C: Caller>(
    caller: &C,
    call: Call<'_>,
    policy: &HedgingPolicy,
    (shared, budget): (&SharedAttempts, &Budget),
) -> Result<ClientReply, Status> {
    let codes = policy.non_fatal_codes;
    // The attempts share the request.
    let call = call.into_owned();
    let mut hedges = Hedges::new(*policy, now());
    let mut running = FuturesUnordered::new();
    // The last failure that is not fatal.
    let mut last = None;
    loop {
        let due = hedges.next_deadline();
        tokio::select! {
            biased;
            // Answers go first: one that is there makes the next attempt needless.
            Some(result) = running.next(), if !running.is_empty() => {
                let status: Status = match result {
                    Ok(reply) => {
                        count(budget, codes, Ok(()));
                        return Ok(reply);
                    }
                    Err(status) => status,
                };
                // Only idempotent calls are hedged, so that each may be repeated.
                let failure = failure(&status, true);
                count(budget, codes, Err((&status, &failure)));
                if hedges.failed(&failure, now()) == Outcome::Ended {
                    // They are dropped with this future, and a handler may have seen them.
                    let others = !running.is_empty();
                    return Err(shared.with(|it| it.final_status_beside(status, others)));
                }
                shared.with(|it| it.followed(&status));
                last = Some(status);
            }
            () = until(due), if due.is_some() => {
                if hedges.is_begun() && !budget.take_for(call.method(), RetryKind::Hedge) {
                    // Without budget the call waits for the attempts that run; if none does, the
                    // last failure is its end.
                    match (hedges.give_up(), last.take()) {
                        (Outcome::Ended, Some(status)) => {
                            return Err(shared.with(|it| it.final_status(status)));
                        }
                        (_, status) => last = status,
                    }
                    continue;
                }
                if hedges.is_begun() {
                    retried(call.method(), RetryKind::Hedge);
                }
                let attempt = call.try_clone().expect("its request is one message");
                running.push(make(caller, attempt, hedges.sent(now())));
            }
        }
    }
}

async fn make<C: Caller>(
    caller: &C,
    attempt: ClientCall,
    previous: u32,
) -> Result<ClientReply, Status> {
    let mut attempt = attempt.into_call();
    mark_attempt(&mut attempt, previous);
    let Some(explain) = attempt.extensions().get::<Explain>().cloned() else {
        return caller.call(attempt).await;
    };
    // Attempts side by side would mix their marks up. A future that is dropped tells of nothing.
    let own = Explain::new();
    attempt.extensions_mut().insert(own.clone());
    let made = caller.call(attempt).await;
    explain.adopt(&own);
    made
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
