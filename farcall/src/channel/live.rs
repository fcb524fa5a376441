//! The target of a settings file that is watched: what of a channel changes while it is in use.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::client::ConfiguredNames;
use rpc_core::client::attempts::{PolicyAttempts, ServiceConfig};
use tokio::sync::watch;

use super::resolvers::resolver_of;
use crate::balance::Endpoint;
use crate::resolve::{CustomSchemes, Refresh, Resolve, ResolveError};
use crate::tls::ClientTls;
use crate::{Address, Readiness};

/// What a channel has for calls that say nothing themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallRules {
    pub(super) timeout: Option<Duration>,
    pub(super) unary_timeout: Option<Duration>,
    pub(super) readiness: Readiness,
}

/// The attempts at calls by a service config; `None` where it sets nothing.
pub(super) fn attempts(config: ServiceConfig) -> Option<Arc<PolicyAttempts>> {
    (!config.is_empty()).then(|| Arc::new(PolicyAttempts::new(config)))
}

/// What a target has for its calls.
#[derive(Debug, Clone)]
pub(super) struct TargetRules {
    pub(super) calls: CallRules,
    pub(super) attempts: Option<Arc<PolicyAttempts>>,
}

/// A target that may change. Its channels share it, and the settings know it for as long as one of
/// them lives.
#[derive(Debug)]
pub(crate) struct LiveTarget {
    /// What error messages call it.
    pub(super) name: String,
    pub(super) address: watch::Sender<Address>,
    pub(super) rules: RwLock<Arc<TargetRules>>,
    /// The names of `methods`, which the connections of all its channels share.
    pub(super) names: Arc<ConfiguredNames>,
    /// The schemes of the settings.
    pub(super) schemes: CustomSchemes,
    pub(super) tls: Option<ClientTls>,
    pub(super) requires_encryption: bool,
}

impl LiveTarget {
    pub(super) fn rules(&self) -> Arc<TargetRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which service config a channel's calls are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptsOf {
    Target,
    /// The program has set one.
    Code,
}

/// A channel's part in a target that may change: what the program sets in code stays.
#[derive(Debug, Clone)]
pub(super) struct Live {
    target: Arc<LiveTarget>,
    timeout: Option<Duration>,
    unary_timeout: Option<Duration>,
    readiness: Option<Readiness>,
    attempts: AttemptsOf,
}

impl Live {
    pub(super) fn new(target: Arc<LiveTarget>) -> Self {
        let attempts = AttemptsOf::Target;
        Self { target, timeout: None, unary_timeout: None, readiness: None, attempts }
    }

    pub(super) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn with_unary_timeout(mut self, timeout: Duration) -> Self {
        self.unary_timeout = Some(timeout);
        self
    }

    pub(super) fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = Some(readiness);
        self
    }

    pub(super) fn with_attempts_of_code(mut self) -> Self {
        self.attempts = AttemptsOf::Code;
        self
    }

    /// The names in the target's service config; absent where the program has set its own.
    pub(super) fn names(&self) -> Option<Arc<ConfiguredNames>> {
        (self.attempts == AttemptsOf::Target).then(|| Arc::clone(&self.target.names))
    }

    /// What a call has that is made now. `of_code` is what the channel was made with.
    pub(super) fn now(
        &self,
        of_code: Option<&Arc<PolicyAttempts>>,
    ) -> (CallRules, Option<Arc<PolicyAttempts>>) {
        let rules = self.target.rules();
        let calls = CallRules {
            timeout: self.timeout.or(rules.calls.timeout),
            unary_timeout: self.unary_timeout.or(rules.calls.unary_timeout),
            readiness: self.readiness.unwrap_or(rules.calls.readiness),
        };
        let attempts = match self.attempts {
            AttemptsOf::Code => of_code,
            AttemptsOf::Target => rules.attempts.as_ref(),
        };
        (calls, attempts.cloned())
    }

    /// Returns a resolver that follows the target's address when that changes.
    pub(super) fn resolver(&self, schemes: &CustomSchemes) -> impl Resolve {
        let mut address = self.target.address.subscribe();
        let inner = resolver_of(&address.borrow_and_update(), schemes);
        let (name, schemes) = (self.target.name.clone(), schemes.clone());
        TargetResolver { name, address, schemes, inner }
    }
}

/// The servers of a target's address, which may change.
struct TargetResolver {
    name: String,
    address: watch::Receiver<Address>,
    schemes: CustomSchemes,
    /// That of the address as it is now.
    inner: Box<dyn Resolve>,
}

impl Resolve for TargetResolver {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        Box::pin(async {
            loop {
                tokio::select! {
                    biased;
                    // The sender goes with the channel, and so does this future.
                    Ok(()) = self.address.changed() => {}
                    listed = self.inner.next(refresh) => return listed,
                }
                // The first list of a resolver is there at once, or as soon as its name is
                // resolved. Until then the endpoints of the old address are kept.
                self.inner = resolver_of(&self.address.borrow_and_update(), &self.schemes);
            }
        })
    }
}
