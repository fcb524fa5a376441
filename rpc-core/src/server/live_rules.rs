//! The rules of a server that may change while it serves.

use std::time::Duration;

use super::{ListenerSettings, MethodCompression};
use crate::call::log::CallLog;
use crate::policy::lifetime::LifetimeRules;

/// The rules of a server that may change while it serves: what a
/// [`ServerBuilder`](super::ServerBuilder) says, services, layers and upgraded paths apart.
#[derive(Debug, Clone)]
pub struct LiveRules {
    pub(super) settings: ListenerSettings,
    pub(super) lifetime: LifetimeRules,
    pub(super) drain_timeout: Duration,
    pub(super) max_connections: usize,
    pub(super) max_connections_per_peer: Option<usize>,
    pub(super) max_calls: usize,
    pub(super) max_calls_per_peer: Option<usize>,
    pub(super) max_memory: Option<u64>,
    pub(super) unary_timeout: Option<Duration>,
    pub(super) log: CallLog,
    pub(super) method_compression: MethodCompression,
}

impl LiveRules {
    /// Takes the rule of that setter of a builder from `other`. A name that is none changes
    /// nothing.
    pub fn take(&mut self, setter: &str, other: &Self) {
        match setter {
            "limits" => self.settings.limits = other.settings.limits,
            "compression" => self.settings.compression = other.settings.compression,
            "method_compression" => {
                self.method_compression.clone_from(&other.method_compression);
            }
            "handshake_timeout" => {
                self.settings.handshake_timeout = other.settings.handshake_timeout;
            }
            "keepalive" => self.settings.keepalive = other.settings.keepalive,
            "progress_timeout" => self.settings.progress_timeout = other.settings.progress_timeout,
            "idle_timeout" => self.lifetime.idle_timeout = other.lifetime.idle_timeout,
            "max_connection_age" => self.lifetime.age_max = other.lifetime.age_max,
            "max_connection_age_grace" => self.lifetime.age_grace = other.lifetime.age_grace,
            "drain_timeout" => self.drain_timeout = other.drain_timeout,
            "max_connections" => self.max_connections = other.max_connections,
            "max_connections_per_peer" => {
                self.max_connections_per_peer = other.max_connections_per_peer;
            }
            "max_calls" => self.max_calls = other.max_calls,
            "max_calls_per_peer" => self.max_calls_per_peer = other.max_calls_per_peer,
            "max_memory" => self.max_memory = other.max_memory,
            "unary_timeout" => self.unary_timeout = other.unary_timeout,
            "log_failed_calls" => self.log.failures = other.log.failures,
            "access_log" => self.log.access = other.log.access,
            _ => {}
        }
    }
}
