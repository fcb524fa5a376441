//! Calls under the policies of a service config: attempts at a call, one after another or side by
//! side.
//!
//! [`ServiceConfig`] says what applies to a method, [`crate::policy::retry`] decides, and
//! [`PolicyAttempts`] makes the attempts through the channel, which picks an endpoint for each and
//! repeats by itself what no handler has seen.

mod budget;
mod config;
mod hedging;
mod machine;
mod retrying;
mod shared;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::metadata::MetadataValue;

use self::budget::Budget;
pub use self::config::{MethodConfig, ServiceConfig};
pub(in crate::client) use self::machine::{Attempts, Servers};
pub(in crate::client) use self::shared::{LevelAttempts, SharedAttempts};
use super::call::deadline::SetBy;
use super::{Call, CallRules, Caller, ClientReply};
use crate::policy::retry::Failure;
use crate::policy::retry::codes::Codes;
use crate::policy::retry::pushback::{ATTEMPTS_KEY, PUSHBACK_KEY, Pushback};
use crate::{Deadline, Idempotency, NotExecuted, Readiness};

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
    /// With the status of the last attempt. It is marked with
    /// [`MayHaveExecuted`](crate::MayHaveExecuted) if one of them may have been executed and the
    /// last one was not.
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
                self.budget.called();
                let shared = insert_shared(&mut call);
                let budget = &self.budget;
                retrying::call(caller, call, policy, is_idempotent, (&shared, budget)).await
            }
            (None, Some(policy)) if is_repeatable && is_idempotent => {
                self.budget.called();
                let shared = insert_shared(&mut call);
                hedging::call(caller, call, policy, (&shared, &self.budget)).await
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

/// What a policy has to know of a status.
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
