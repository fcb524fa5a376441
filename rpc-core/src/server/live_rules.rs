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

macro_rules! live_settings {
    ($($name:ident,)*) => {
        /// A setting of a server that may change while it serves, by the builder's setter for it.
        #[allow(missing_docs, reason = "the setters of `ServerBuilder` have the documentation")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum LiveSetting {
            $($name,)*
        }

        impl LiveSetting {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

live_settings! {
    Limits,
    Compression,
    MethodCompression,
    HandshakeTimeout,
    Keepalive,
    ProgressTimeout,
    IdleTimeout,
    MaxConnectionAge,
    MaxConnectionAgeGrace,
    DrainTimeout,
    MaxConnections,
    MaxConnectionsPerPeer,
    MaxCalls,
    MaxCallsPerPeer,
    MaxMemory,
    UnaryTimeout,
    LogFailedCalls,
    AccessLog,
}

impl LiveRules {
    /// Takes the value of one setting from `other`.
    pub fn take(&mut self, setting: LiveSetting, other: &Self) {
        // Each field has a name here and each setting an arm, so that a new one of either does not
        // compile until a reload leaves alone what the program sets.
        let Self {
            settings:
                ListenerSettings {
                    upgrades: _,
                    protocols: _,
                    limits,
                    compression,
                    handshake_timeout,
                    keepalive,
                    progress_timeout,
                },
            lifetime: LifetimeRules { idle_timeout, age_max, age_grace },
            drain_timeout,
            max_connections,
            max_connections_per_peer,
            max_calls,
            max_calls_per_peer,
            max_memory,
            unary_timeout,
            log: CallLog { failures, access },
            method_compression,
        } = other;
        match setting {
            LiveSetting::Limits => self.settings.limits = *limits,
            LiveSetting::Compression => self.settings.compression = *compression,
            LiveSetting::MethodCompression => {
                self.method_compression.clone_from(method_compression);
            }
            LiveSetting::HandshakeTimeout => self.settings.handshake_timeout = *handshake_timeout,
            LiveSetting::Keepalive => self.settings.keepalive = *keepalive,
            LiveSetting::ProgressTimeout => self.settings.progress_timeout = *progress_timeout,
            LiveSetting::IdleTimeout => self.lifetime.idle_timeout = *idle_timeout,
            LiveSetting::MaxConnectionAge => self.lifetime.age_max = *age_max,
            LiveSetting::MaxConnectionAgeGrace => self.lifetime.age_grace = *age_grace,
            LiveSetting::DrainTimeout => self.drain_timeout = *drain_timeout,
            LiveSetting::MaxConnections => self.max_connections = *max_connections,
            LiveSetting::MaxConnectionsPerPeer => {
                self.max_connections_per_peer = *max_connections_per_peer;
            }
            LiveSetting::MaxCalls => self.max_calls = *max_calls,
            LiveSetting::MaxCallsPerPeer => self.max_calls_per_peer = *max_calls_per_peer,
            LiveSetting::MaxMemory => self.max_memory = *max_memory,
            LiveSetting::UnaryTimeout => self.unary_timeout = *unary_timeout,
            LiveSetting::LogFailedCalls => self.log.failures = *failures,
            LiveSetting::AccessLog => self.log.access = *access,
        }
    }
}
