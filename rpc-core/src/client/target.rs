//! The target of a channel: one server, or many; and rules of it that may change while its channels
//! are in use.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tonic::Status;

use crate::balance::{Connectivity, EndpointStatus};
use crate::client::attempts::{PolicyAttempts, SharedAttempts};
use crate::client::call::rules::CallRules;
use crate::client::endpoints::Endpoints;
use crate::client::subchannel::Subchannel;
use crate::client::{Call, Caller, ChannelSettingsOverlay, ClientReply, Path};
use crate::connect::{ConnectError, ConnectFault};

/// The servers that a channel calls.
#[derive(Debug, Clone)]
pub enum Target {
    /// One server. A list of one entry would add a pick, a load count and a look at the clock to
    /// each call.
    Direct(Subchannel),
    /// Many servers, each call to one of them.
    Balanced(Endpoints),
}

impl Target {
    /// Connects now.
    pub(super) async fn connect(&self, address: &str) -> Result<(), ConnectError> {
        match self {
            Self::Direct(subchannel) => subchannel.here().manager.connect().await,
            Self::Balanced(endpoints) => endpoints.connected().await.map_err(|reason| {
                ConnectError::from(ConnectFault::Address {
                    address: address.to_owned(),
                    reason: reason.to_string(),
                })
            }),
        }
    }

    /// Returns the one server, or the first of many that is connected, as the current runtime has
    /// it.
    pub(super) fn connected(&self) -> Option<Cow<'_, Subchannel>> {
        match self {
            Self::Direct(subchannel) => Some(subchannel.here()),
            Self::Balanced(endpoints) => {
                endpoints.first_connected().map(|it| Cow::Owned(it.here().into_owned()))
            }
        }
    }

    /// Returns the path that calls take.
    pub(super) fn path(&self) -> Path {
        match (self.connected(), self) {
            (Some(subchannel), _) => subchannel.manager.path(),
            // Never reached: the subchannel of a direct target is always there.
            (None, Self::Direct(_)) => Path::Disconnected { reason: None, retry_in: None },
            (None, Self::Balanced(endpoints)) => {
                let reason = endpoints.failure().map(|reason| reason.to_string());
                Path::Disconnected { reason, retry_in: endpoints.retry_in() }
            }
        }
    }

    /// Describes each server.
    pub(super) fn status(&self) -> Vec<EndpointStatus> {
        match self {
            Self::Direct(subchannel) => vec![subchannel.status()],
            Self::Balanced(endpoints) => endpoints.status(),
        }
    }

    /// Returns the state of the one connection, or the best of many.
    pub(super) fn connectivity(&self) -> Connectivity {
        match self {
            Self::Direct(subchannel) => subchannel.here().manager.connectivity(),
            Self::Balanced(endpoints) => endpoints.connectivity(),
        }
    }

    /// Waits for another state.
    pub(super) async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        match self {
            Self::Direct(subchannel) => subchannel.here().manager.connectivity_changed(state).await,
            Self::Balanced(endpoints) => endpoints.connectivity_changed(state).await,
        }
    }
}

/// A target and the rules of a call that takes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuledTarget<'a> {
    pub(super) target: &'a Target,
    pub(super) rules: &'a CallRules,
}

impl Caller for RuledTarget<'_> {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        match self.target {
            Target::Direct(subchannel) => {
                // Policies around this target put their machine there. The subchannel counts its
                // attempts in the same one, so that the bounds add up.
                let shared = call.extensions().get::<SharedAttempts>().cloned();
                subchannel.route(self.rules, shared.as_ref()).call(call).await
            }
            Target::Balanced(endpoints) => endpoints.call(self.rules, call).await,
        }
    }
}

/// Rules for all calls of a target, and policies for those of single methods.
#[derive(Debug, Clone, Default)]
pub struct TargetRules {
    /// Rules for calls that set nothing themselves.
    pub calls: CallRules,
    /// The service config at work. Absent where it sets nothing.
    pub policies: Option<Arc<PolicyAttempts>>,
}

/// The rules of a watched target. Its channels share them, and each call loads them once.
#[derive(Debug)]
pub struct WatchedRules(ArcSwap<TargetRules>);

impl WatchedRules {
    /// Returns rules that may change.
    #[must_use]
    pub fn new(rules: TargetRules) -> Self {
        Self(ArcSwap::from_pointee(rules))
    }

    /// Returns the current rules.
    #[must_use]
    pub fn load(&self) -> Arc<TargetRules> {
        self.0.load_full()
    }

    /// Replaces the rules. Calls that have begun keep theirs.
    pub fn store(&self, rules: TargetRules) {
        self.0.store(Arc::new(rules));
    }
}

/// Watched rules, and the rules that the program sets in code, which take precedence.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The rules of the target.
    pub target: Arc<WatchedRules>,
    /// The target, which its owner keeps up to date for as long as a channel holds it.
    pub owner: Arc<dyn Any + Send + Sync>,
    /// The settings in code.
    pub code: Arc<ChannelSettingsOverlay>,
    /// Set if the policies are those in code.
    pub has_own_policies: bool,
}

impl Watched {
    /// Returns watched rules of which the program overrides none.
    #[must_use]
    pub fn new(target: Arc<WatchedRules>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { target, owner, code: Arc::default(), has_own_policies: false }
    }

    /// Returns the rules of a call that begins now. `own` are those that the channel was made with:
    /// its policies count if they were set in code, and its log does not change.
    pub(super) fn now(&self, own: &TargetRules) -> TargetRules {
        // Loaded once: between two loads, a reload could combine its rules with older policies.
        let target = self.target.0.load();
        let calls = target.calls.under(&self.code);
        let calls = CallRules { log_failures: own.calls.log_failures, ..calls };
        let policies = if self.has_own_policies { &own.policies } else { &target.policies };
        TargetRules { calls, policies: policies.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rules_in_code_precede_those_of_the_target() {
        let rules = |timeout, unary_timeout| TargetRules {
            calls: CallRules { timeout, unary_timeout, ..CallRules::DEFAULT },
            policies: None,
        };
        let target = Arc::new(WatchedRules::new(rules(Some(SECOND), None)));
        let mut watched = Watched::new(Arc::clone(&target), Arc::new(()));
        let mut own = rules(Some(9 * SECOND), None);
        own.calls.log_failures = false;
        let now = watched.now(&own).calls;
        assert_eq!((now.timeout, now.log_failures), (Some(SECOND), false));
        let timeout = Some(Some(2 * SECOND));
        let mut code = ChannelSettingsOverlay { timeout, ..Default::default() };
        watched.code = Arc::new(code.clone());
        target.store(rules(Some(3 * SECOND), Some(4 * SECOND)));
        let now = watched.now(&own).calls;
        assert_eq!((now.timeout, now.unary_timeout), (Some(2 * SECOND), Some(4 * SECOND)));
        assert!(!now.wait_for_ready);
        code.wait_for_ready = Some(true);
        code.unary_timeout = Some(None);
        watched.code = Arc::new(code);
        let now = watched.now(&own).calls;
        assert_eq!((now.wait_for_ready, now.unary_timeout), (true, None));
    }
}
