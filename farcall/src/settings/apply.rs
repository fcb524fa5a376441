//! From tables to what builders take.

use rpc_core::InvalidSetting;

use super::compression::method_compression;
use super::invalid::{Conflicts, set};
use super::methods::service_config;
use super::tables::{KeepaliveTable, ServerTable, TargetTable};
use crate::{
    Backoff, ChannelBuilder, ConnectBackoff, Keepalive, Limits, Readiness, ReplayLimits,
    ServerBuilder,
};

/// Settings, if those of several keys can be together.
fn checked<T>(
    settings: T,
    check: impl FnOnce(&T) -> Result<(), InvalidSetting>,
) -> Result<T, InvalidSetting> {
    check(&settings).map(|()| settings)
}

fn keepalive(
    KeepaliveTable { 0: switch, 1: times }: &KeepaliveTable,
) -> Result<Option<Keepalive>, InvalidSetting> {
    let keepalive = checked(times.settings(), Keepalive::check)?;
    Ok(switch.enabled.unwrap_or(true).then_some(keepalive))
}

impl TargetTable {
    /// What a channel's builder has from this table, its address apart.
    pub(super) fn apply(&self, builder: ChannelBuilder, all: &mut Conflicts) -> ChannelBuilder {
        let wait = self.wait_for_ready.unwrap_or(false);
        let readiness = if wait { Readiness::WaitForReady } else { Readiness::FailFast };
        let builder = builder
            .limits(all.value_of(checked(self.limits.settings(), Limits::check)))
            .compression(all.value_of(self.compression.compression()))
            .keepalive(all.value_of(keepalive(&self.keepalive)))
            .connect_backoff(
                all.value_of(checked(self.connect_backoff.settings(), ConnectBackoff::check)),
            )
            .path_backoff(all.value_of(checked(self.path_backoff.settings(), Backoff::check)))
            .replays(all.value_of(checked(self.replays.settings(), ReplayLimits::check)))
            .balance(all.value_of(self.balance.config()))
            .set_service_config(service_config(&self.methods, &self.retry_budget, all))
            .readiness(readiness);
        set! { builder,
            self.timeout.flatten() => timeout;
            self.unary_timeout.flatten() => unary_timeout;
            self.handshake_timeout => handshake_timeout;
            self.progress_timeout => progress_timeout;
            self.log_failed_calls => log_failed_calls;
            self.require_encryption => require_encryption;
        }
        builder
    }
}

impl ServerTable {
    /// What a server's builder has from this table, its address apart.
    pub(super) fn apply(&self, builder: ServerBuilder, all: &mut Conflicts) -> ServerBuilder {
        let count = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
        let builder = builder
            .limits(all.value_of(checked(self.limits.settings(), Limits::check)))
            .compression(all.value_of(self.compression.compression()))
            .method_compression(method_compression(&self.methods, all))
            .keepalive(all.value_of(keepalive(&self.keepalive)));
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
