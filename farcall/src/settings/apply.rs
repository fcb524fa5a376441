//! From tables to what builders take.

use rpc_core::InvalidSetting;

use super::compression::method_compression;
use super::invalid::{Conflicts, set};
use super::methods::service_config;
use super::tables::{
    ConnectBackoffTable, KeepaliveTable, LimitsTable, PathBackoffTable, ReplaysTable, ServerTable,
    TargetTable,
};
use crate::{
    Backoff, ChannelBuilder, ConnectBackoff, Keepalive, Limits, Readiness, ReplayLimits,
    ServerBuilder,
};

impl LimitsTable {
    fn limits(&self) -> Result<Limits, InvalidSetting> {
        let limits = Limits::default();
        set! { limits,
            self.max_message_len.map(|it| it.0) => with_max_message_len;
            self.max_metadata_len.map(|it| it.0) => with_max_metadata_len;
            self.max_calls => with_max_calls;
            self.max_receiving_bytes.map(|it| it.0) => with_max_receiving_bytes;
            self.max_stream_messages => with_max_stream_messages;
            self.max_stream_bytes.map(|it| it.0) => with_max_stream_bytes;
        }
        limits.check().map(|()| limits)
    }
}

impl KeepaliveTable {
    fn keepalive(&self) -> Result<Option<Keepalive>, InvalidSetting> {
        let keepalive = Keepalive::default();
        set! { keepalive,
            self.interval.map(|it| it.0) => with_interval;
            self.timeout.map(|it| it.0) => with_timeout;
        }
        keepalive.check()?;
        Ok(self.enabled.unwrap_or(true).then_some(keepalive))
    }
}

impl ConnectBackoffTable {
    fn backoff(&self) -> Result<ConnectBackoff, InvalidSetting> {
        let backoff = ConnectBackoff::default();
        set! { backoff,
            self.initial_delay.map(|it| it.0) => with_initial_delay;
            self.max_delay.map(|it| it.0) => with_max_delay;
            self.multiplier => with_multiplier;
            self.jitter => with_jitter;
        }
        backoff.check().map(|()| backoff)
    }
}

impl PathBackoffTable {
    fn backoff(&self) -> Result<Backoff, InvalidSetting> {
        let backoff = Backoff::default();
        set! { backoff,
            self.initial_delay.map(|it| it.0) => with_initial_delay;
            self.max_delay.map(|it| it.0) => with_max_delay;
            self.healthy_after.map(|it| it.0) => with_healthy_after;
        }
        backoff.check().map(|()| backoff)
    }
}

impl ReplaysTable {
    fn limits(&self) -> Result<ReplayLimits, InvalidSetting> {
        let limits = ReplayLimits::default();
        set! { limits,
            self.max_burst => with_max_burst;
            self.per_second => with_per_second;
        }
        limits.check().map(|()| limits)
    }
}

impl TargetTable {
    /// What a channel's builder has from this table, its address apart.
    pub(super) fn apply(&self, builder: ChannelBuilder, all: &mut Conflicts) -> ChannelBuilder {
        let wait = self.wait_for_ready.unwrap_or(false);
        let readiness = if wait { Readiness::WaitForReady } else { Readiness::FailFast };
        let builder = builder
            .limits(all.value_of(self.limits.limits()))
            .compression(all.value_of(self.compression.compression()))
            .keepalive(all.value_of(self.keepalive.keepalive()))
            .connect_backoff(all.value_of(self.connect_backoff.backoff()))
            .path_backoff(all.value_of(self.path_backoff.backoff()))
            .replays(all.value_of(self.replays.limits()))
            .balance(all.value_of(self.balance.config()))
            .service_config(service_config(&self.methods, &self.retry_budget, all))
            .readiness(readiness);
        set! { builder,
            self.timeout.and_then(|it| it.0) => timeout;
            self.unary_timeout.and_then(|it| it.0) => unary_timeout;
            self.handshake_timeout.map(|it| it.0) => handshake_timeout;
            self.progress_timeout.map(|it| it.0) => progress_timeout;
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
            .limits(all.value_of(self.limits.limits()))
            .compression(all.value_of(self.compression.compression()))
            .method_compression(method_compression(&self.methods, all))
            .keepalive(all.value_of(self.keepalive.keepalive()));
        set! { builder,
            self.drain_timeout.map(|it| it.0) => drain_timeout;
            self.unary_timeout.map(|it| it.0) => unary_timeout;
            self.idle_timeout.map(|it| it.0) => idle_timeout;
            self.max_connection_age.map(|it| it.0) => max_connection_age;
            self.max_connection_age_grace.map(|it| it.0) => max_connection_age_grace;
            self.max_calls.map(|it| count(it.into())) => max_calls;
            self.max_calls_per_peer.map(|it| it.0.map(count)) => max_calls_per_peer;
            self.max_connections.map(|it| count(it.into())) => max_connections;
            self.max_connections_per_peer.map(|it| it.0.map(count)) => max_connections_per_peer;
            self.max_memory.map(|it| it.0) => max_memory;
            self.handshake_timeout.map(|it| it.0) => handshake_timeout;
            self.progress_timeout.map(|it| it.0) => progress_timeout;
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
