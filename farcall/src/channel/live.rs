//! The target of a settings file that is watched: what of a channel changes while it is in use.

use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::attempts::PolicyAttempts;
use rpc_core::client::{ConfiguredNames, WatchedRules};
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

impl LiveTarget {
    /// What tells the target's servers, and tells them anew when the address changes.
    pub(super) fn resolver(&self) -> impl Resolve + use<> {
        let mut address = self.address.subscribe();
        let resolver_of = self.resolver_of;
        let inner = resolver_of(&address.borrow_and_update());
        TargetResolver { name: self.name.clone(), address, resolver_of, inner }
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
