//! From tables to what builders take.

use rpc_core::InvalidSetting;
use rpc_core::settings::Settings as _;

use super::compression::method_compression;
use super::invalid::{Conflicts, set};
use super::methods::service_config;
use super::tables::{ServerTable, TargetTable};
use crate::{Address, ChannelBuilder, Compression, Keepalive, Limits, ServerBuilder};

/// Settings, if those of several keys can be together.
fn checked<T>(
    settings: T,
    check: impl FnOnce(&T) -> Result<(), InvalidSetting>,
) -> Result<T, InvalidSetting> {
    check(&settings).map(|()| settings)
}

impl TargetTable {
    /// Returns a builder of a channel to `address`, with this table as the layer of its file.
    pub(super) fn builder(&self, address: Address, all: &mut Conflicts) -> ChannelBuilder {
        let file = self.settings().clone();
        all.0.extend(file.settings().faults().into_iter().map(Into::into));
        let calls = self.calls();
        let service = service_config(&calls.methods, &calls.retry_budget, all);
        ChannelBuilder::with_file(address, file, service)
    }
}

impl ServerTable {
    /// What a server's builder has from this table, its address apart.
    pub(super) fn apply(&self, builder: ServerBuilder, all: &mut Conflicts) -> ServerBuilder {
        let count = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
        let builder = builder
            .limits(all.value_of(checked(self.limits.settings(), Limits::check)))
            .compression(all.value_of(checked(self.compression.settings(), Compression::check)))
            .method_compression(method_compression(&self.methods, all))
            .keepalive(
                all.value_of(checked(self.keepalive.settings(), Keepalive::check)).when_enabled(),
            );
        set! { builder,
            self.drain_timeout => drain_timeout;
            self.unary_timeout => unary_timeout;
            self.idle_timeout => idle_timeout;
            self.max_connection_age => max_connection_age;
            self.max_connection_age_grace => max_connection_age_grace;
            self.max_calls.map(|it| count(it.into())) => max_calls;
            self.max_calls_per_peer.map(|it| it.map(count)) => max_calls_per_peer;
            self.max_connections.map(|it| count(it.into())) => max_connections;
            self.max_connections_per_peer.map(|it| it.map(count)) => max_connections_per_peer;
            self.max_memory => max_memory;
            self.handshake_timeout => handshake_timeout;
            self.progress_timeout => progress_timeout;
            self.rdma_required => rdma_required;
            self.log_failed_calls => log_failed_calls;
            self.access_log => access_log;
            self.require_encryption => require_encryption;
            self.socket_mode.map(|it| it.0) => socket_mode;
            self.socket_owner.clone() => socket_owner;
            self.proxy_protocol.from.clone() => proxy_protocol;
        }
        #[cfg(feature = "grpc")]
        set! { builder, self.grpc_web_origins.clone() => grpc_web_origins; }
        #[cfg(not(feature = "grpc"))]
        if let Some(origins) = self.grpc_web_origins.as_ref().filter(|it| !it.is_empty()) {
            // Pages would ask for leave in vain.
            let rule = "[]: this program was built without farcall's feature `grpc`";
            all.value_of::<()>(Err(InvalidSetting::new("grpc_web_origins", origins, rule)));
        }
        builder
    }
}
