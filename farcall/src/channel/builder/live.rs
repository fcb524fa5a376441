//! A target of the settings: the handle that it shares, and a reload.

use std::sync::Arc;

use rpc_core::client::attempts::PolicyAttempts;
use rpc_core::client::{CallRules, ConfiguredNames, TargetRules, WatchedRules};
use rpc_core::overlays::ChannelSettingsOverlay;
use tokio::sync::watch;

use super::ChannelBuilder;
use crate::Address;
use crate::channel::encryption::ServiceName;
use crate::channel::live::{LiveTarget, attempts};
use crate::rdma::Rdma;
use crate::resolve::Scheme;
use rpc_core::client::attempts::ServiceConfig;

impl ChannelBuilder {
    /// Returns a builder with the layer of a settings file.
    pub(crate) fn with_file(
        address: Address,
        file: ChannelSettingsOverlay,
        service: ServiceConfig,
    ) -> Self {
        let mut builder = Self::new(address);
        builder.layers.file = file;
        builder.service.file = service;
        builder
    }

    /// The same builder with the handle of its settings.
    pub(crate) fn set_rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }
}

impl LiveTarget {
    /// A target as the settings have it, before the program changes the builder.
    fn new(name: String, builder: &ChannelBuilder) -> Self {
        let rules = TargetRules {
            calls: CallRules::new(&builder.settings()),
            policies: attempts(builder.service_config().clone()),
        };
        Self {
            name,
            address: watch::Sender::new(builder.address().clone()),
            rules: Arc::new(WatchedRules::new(rules)),
            names: Arc::new(ConfiguredNames::new(builder.service_config())),
            schemes: builder.schemes().clone(),
            tls: builder.tls.clone(),
            requires_encryption: builder.settings().require_encryption,
        }
    }

    /// The keys that `builder` has other values of and that its channels cannot take while they
    /// are in use. A connection that was to be encrypted is not made in the clear, so that the
    /// address waits where encryption does.
    pub(crate) fn held_back(&self, builder: &ChannelBuilder) -> &'static [&'static str] {
        let is_encrypted_anew = self.tls.is_some() != builder.tls.is_some()
            || self.requires_encryption != builder.settings().require_encryption;
        let (old, new) = (self.address.borrow(), builder.address());
        // Certificates, and requests over HTTP/2, are for the name of a name's address.
        let is_named = |address: &Address| {
            let is_grpc = address.scheme().is_some_and(Scheme::is_grpc);
            let has_name = ServiceName::new(address, &self.schemes).is_some();
            has_name && (self.tls.is_some() || is_grpc)
        };
        if is_encrypted_anew {
            &["tls", "require_encryption", "address"]
        } else if *old != *new && (is_named(&old) || is_named(new)) {
            &["address"]
        } else {
            &[]
        }
    }

    /// Takes what `builder` has, apart from what is held back.
    pub(crate) fn update(&self, builder: &ChannelBuilder) {
        let held_back = self.held_back(builder);
        let old = self.rules.load();
        let is_same = |old: &&Arc<PolicyAttempts>| old.config() == builder.service_config();
        // The budget of a service config goes on where the config stays.
        let is_other = old.policies.as_ref().is_none_or(|old| !is_same(&old));
        let policies = match old.policies.as_ref().filter(is_same) {
            Some(old) => Some(Arc::clone(old)),
            None => attempts(builder.service_config().clone()),
        };
        self.rules.store(TargetRules { calls: CallRules::new(&builder.settings()), policies });
        #[cfg(feature = "tls")]
        if let (Some(old), Some(new)) = (&self.tls, &builder.tls) {
            old.replace(new);
        }
        if is_other {
            self.names.replace(builder.service_config());
        }
        // Last: the connections to new servers have the TLS that came with their address.
        if !held_back.contains(&"address") {
            self.address.send_if_modified(|address| {
                let is_other = *address != *builder.address();
                address.clone_from(builder.address());
                is_other
            });
        }
    }
}

impl ChannelBuilder {
    /// The same builder, whose channels take what the settings say of their target later. What the
    /// program sets from here on stays.
    pub(crate) fn live(mut self, name: String) -> (Self, Arc<LiveTarget>) {
        let target = Arc::new(LiveTarget::new(name, &self));
        self.live = Some(Arc::clone(&target));
        (self, target)
    }
}
