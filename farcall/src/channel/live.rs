//! The target of a settings file that is watched: what of a channel changes while it is in use.

use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::attempts::PolicyAttempts;
use rpc_core::client::{ConfiguredNames, Watched, WatchedRules};
use tokio::sync::watch;

use crate::Address;
use crate::balance::Endpoint;
use crate::resolve::{Refresh, Resolve, ResolveError};
use crate::retry::ServiceConfig;
use crate::tls::ClientTls;

/// Returns the attempts at calls by a service config; `None` where it sets nothing.
pub(super) fn attempts(config: ServiceConfig) -> Option<Arc<PolicyAttempts>> {
    (!config.is_empty()).then(|| Arc::new(PolicyAttempts::new(config)))
}

/// A target that may change. Its channels share it, and the settings know it for as long as one of
/// them lives.
#[derive(Debug)]
pub(crate) struct LiveTarget {
    /// What error messages call it.
    pub(super) name: String,
    pub(super) address: watch::Sender<Address>,
    pub(super) rules: Arc<WatchedRules>,
    /// The names of `methods`, which the connections of all its channels share.
    pub(super) names: Arc<ConfiguredNames>,
    /// What tells the servers of an address.
    pub(super) resolver_of: fn(&Address) -> Box<dyn Resolve>,
    pub(super) tls: Option<ClientTls>,
    pub(super) requires_encryption: bool,
}

/// A channel's part in a target that may change.
#[derive(Debug, Clone)]
pub(super) struct Live {
    target: Arc<LiveTarget>,
    /// The target's rules, and those that the program sets in code.
    pub(super) watched: Watched,
}

impl Live {
    pub(super) fn new(target: Arc<LiveTarget>) -> Self {
        let watched = Watched::new(Arc::clone(&target.rules), Arc::clone(&target) as _);
        Self { target, watched }
    }

    /// The names in the target's service config; absent where the program has set its own.
    pub(super) fn names(&self) -> Option<Arc<ConfiguredNames>> {
        (!self.watched.has_own_policies).then(|| Arc::clone(&self.target.names))
    }

    /// What tells the target's servers, and tells them anew when the address changes.
    pub(super) fn resolver(&self) -> impl Resolve {
        let mut address = self.target.address.subscribe();
        let resolver_of = self.target.resolver_of;
        let inner = resolver_of(&address.borrow_and_update());
        TargetResolver { name: self.target.name.clone(), address, resolver_of, inner }
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
