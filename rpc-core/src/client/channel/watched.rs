//! Rules of a target that may change while its channels are in use.

use std::any::Any;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::client::ChannelSettingsOverlay;
use crate::client::attempts::PolicyAttempts;
use crate::client::call::rules::CallRules;

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
