//! The target of a settings file that is watched: what of a channel changes while it is in use.

use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::attempts::{PolicyAttempts, ServiceConfig};
use rpc_core::client::{ConfiguredNames, WatchedRules};
use tokio::sync::watch;

use super::resolvers::resolver_of;
use crate::Address;
use crate::balance::Endpoint;
use crate::resolve::{CustomSchemes, Refresh, Resolve, ResolveError};
use crate::tls::ClientTls;

/// Returns the attempts at calls by a service config; `None` where it sets nothing.
pub(super) fn attempts(config: ServiceConfig) -> Option<Arc<PolicyAttempts>> {
    (!config.is_empty()).then(|| Arc::new(PolicyAttempts::new(config)))
}

/// A target that may change. Its channels share it, and the settings know it for as long as one of
/// them lives.
#[derive(Debug)]
pub(crate) struct LiveTarget {
    /// Name in error messages.
    pub(super) name: String,
    pub(super) address: watch::Sender<Address>,
    pub(super) rules: Arc<WatchedRules>,
    /// The names of `methods`, which the connections of all its channels share.
    pub(super) names: Arc<ConfiguredNames>,
    /// The schemes of the settings.
    pub(super) schemes: CustomSchemes,
    pub(super) tls: Option<ClientTls>,
    pub(super) requires_encryption: bool,
}

impl LiveTarget {
    /// Returns a resolver that follows the target's address when that changes.
    pub(super) fn resolver(&self, schemes: &CustomSchemes) -> impl Resolve + use<> {
        let mut address = self.address.subscribe();
        let inner = resolver_of(&address.borrow_and_update(), schemes);
        let (name, schemes) = (self.name.clone(), schemes.clone());
        TargetResolver { name, address, schemes, inner }
    }
}

/// The servers of a target's address, which may change.
struct TargetResolver {
    name: String,
    address: watch::Receiver<Address>,
    schemes: CustomSchemes,
    /// Resolver of the current address.
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
