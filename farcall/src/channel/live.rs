//! The target of a settings file that is watched: what of a channel changes while it is in use.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::client::attempts::PolicyAttempts;
use rpc_core::client::{ChannelSettings, ConfiguredNames};
use rpc_core::overlays::ChannelSettingsOverlay;
use tokio::sync::watch;

use crate::balance::Endpoint;
use crate::resolve::{Refresh, Resolve, ResolveError};
use crate::retry::ServiceConfig;
use crate::tls::ClientTls;
use crate::{Address, Readiness};

/// What a channel has for calls that say nothing themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallRules {
    pub(super) timeout: Option<Duration>,
    pub(super) unary_timeout: Option<Duration>,
    pub(super) readiness: Readiness,
}

impl CallRules {
    pub(super) fn new(settings: &ChannelSettings) -> Self {
        Self {
            timeout: settings.timeout,
            unary_timeout: settings.unary_timeout,
            readiness: readiness(settings.wait_for_ready),
        }
    }

    /// Lays what the program sets in code over these rules.
    fn under(self, code: &ChannelSettingsOverlay) -> Self {
        Self {
            timeout: code.timeout.unwrap_or(self.timeout),
            unary_timeout: code.unary_timeout.unwrap_or(self.unary_timeout),
            readiness: code.wait_for_ready.map_or(self.readiness, readiness),
        }
    }
}

fn readiness(wait_for_ready: bool) -> Readiness {
    if wait_for_ready { Readiness::WaitForReady } else { Readiness::FailFast }
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
    /// What tells the servers of an address.
    pub(super) resolver_of: fn(&Address) -> Box<dyn Resolve>,
    pub(super) tls: Option<ClientTls>,
    pub(super) requires_encryption: bool,
}

impl LiveTarget {
    pub(super) fn rules(&self) -> Arc<TargetRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What tells the target's servers, and tells them anew when the address changes.
    pub(super) fn resolver(&self) -> impl Resolve {
        let mut address = self.address.subscribe();
        let resolver_of = self.resolver_of;
        let inner = resolver_of(&address.borrow_and_update());
        TargetResolver { name: self.name.clone(), address, resolver_of, inner }
    }
}

/// Which service config a channel's calls are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptsOf {
    Target,
    /// The program has set one.
    Code,
}

/// A channel's part in a target that may change: what the program sets in code stays.
#[derive(Debug, Clone)]
pub(super) struct Live {
    target: Arc<LiveTarget>,
    code: Arc<ChannelSettingsOverlay>,
    attempts: AttemptsOf,
}

impl Live {
    pub(super) fn new(
        target: Arc<LiveTarget>,
        code: ChannelSettingsOverlay,
        attempts: AttemptsOf,
    ) -> Self {
        Self { target, code: Arc::new(code), attempts }
    }

    pub(super) fn with_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.code).timeout = Some(Some(timeout));
        self
    }

    pub(super) fn with_unary_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.code).unary_timeout = Some(Some(timeout));
        self
    }

    pub(super) fn with_readiness(mut self, readiness: Readiness) -> Self {
        let waits = readiness == Readiness::WaitForReady;
        Arc::make_mut(&mut self.code).wait_for_ready = Some(waits);
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
        let calls = rules.calls.under(&self.code);
        let attempts = match self.attempts {
            AttemptsOf::Code => of_code,
            AttemptsOf::Target => rules.attempts.as_ref(),
        };
        (calls, attempts.cloned())
    }
}

/// The servers of a target's address, which may change.
struct TargetResolver {
    name: String,
    address: watch::Receiver<Address>,
    resolver_of: fn(&Address) -> Box<dyn Resolve>,
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
                self.inner = (self.resolver_of)(&self.address.borrow_and_update());
            }
        })
    }
}
