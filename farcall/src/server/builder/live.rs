//! A server of the settings: the handle that it shares, and a reload.

use std::fmt;

use rpc_core::server::{LiveRules, LiveSetting, NotServed, WeakServer};

use super::ServerBuilder;
use crate::Server;
use crate::rdma::Rdma;
use crate::tls::ServerTls;

/// A server whose settings may change, for as long as it serves or the program holds it.
#[derive(Debug)]
pub(crate) struct LiveServer {
    core: WeakServer,
    /// What the settings gave it: the program may have set another.
    tls: Option<ServerTls>,
    /// The settings that the program has set.
    in_code: Vec<LiveSetting>,
}

/// The settings that a builder came from.
pub(crate) trait Origin: fmt::Debug + Send + Sync {
    /// Describes an error of the settings with its place in the file.
    fn describe(&self, error: &NotServed) -> String;

    /// Registers `server` for reloads of the settings. They leave alone what `in_code` names: the
    /// settings that the program set.
    fn register(self: Box<Self>, server: &Server, in_code: Vec<LiveSetting>);
}

impl ServerBuilder {
    /// Returns the builder with the handle and the place of its settings.
    pub(crate) fn made_by(mut self, rdma: &Rdma, origin: impl Origin + 'static) -> Self {
        self.rdma = Some(rdma.clone());
        self.origin = Some(Box::new(origin));
        self
    }
}

impl LiveServer {
    pub(crate) fn new(server: &Server, tls: Option<ServerTls>, in_code: Vec<LiveSetting>) -> Self {
        Self { core: server.core.downgrade(), tls, in_code }
    }

    /// Whether there is still a server.
    pub(crate) fn is_alive(&self) -> bool {
        self.core.is_alive()
    }

    /// The keys that `builder` has other values of and that a server cannot take while it serves.
    pub(crate) fn held_back(&self, builder: &ServerBuilder) -> &'static [&'static str] {
        if self.tls.is_some() != builder.tls.is_some() { &["tls"] } else { &[] }
    }

    /// Takes the rules of `builder`, as the settings have it. The server is returned, since it goes
    /// with its last handle, which may be this one: what the program's services do then may want
    /// the lock of the settings.
    pub(crate) fn update(&self, builder: &ServerBuilder) -> Option<rpc_core::Server> {
        #[cfg(feature = "tls")]
        if let (Some(old), Some(new)) = (&self.tls, &builder.tls) {
            old.replace(new);
        }
        let (server, rules) = self.with_rules_of(builder)?;
        server.set_rules(rules);
        Some(server)
    }

    /// The server, and what holds after an update: the rules of `builder`, and of the program's
    /// code. The server goes with its last handle, as above.
    pub(crate) fn with_rules_of(
        &self,
        builder: &ServerBuilder,
    ) -> Option<(rpc_core::Server, LiveRules)> {
        let server = self.core.upgrade()?;
        let (mut rules, now) = (builder.live_rules(), server.rules());
        for &setting in &self.in_code {
            rules.take(setting, &now);
        }
        Some((server, rules))
    }
}

impl ServerBuilder {
    /// The rules of a builder as the settings have it, without a config of its own.
    fn live_rules(&self) -> LiveRules {
        let logged = rpc_core::server::ServerBuilder::default();
        let logged = logged.log_failed_calls(self.get_log_failed_calls()).live_rules();
        let mut rules = self.core.live_rules();
        rules.take(LiveSetting::LogFailedCalls, &logged);
        rules
    }

    /// The same builder, whose setters so far were called by the settings and not by the program.
    pub(crate) fn by_settings(mut self) -> Self {
        self.in_code.clear();
        self
    }

    /// The handle to its TLS.
    pub(crate) fn tls_handle(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Compression, Keepalive, Limits, MethodCompression};

    #[test]
    fn reload_leaves_alone_each_setting_of_the_code() {
        let second = Duration::from_secs(1);
        let builder = Server::builder()
            .limits(Limits::default())
            .compression(Compression::OFF)
            .method_compression(MethodCompression::new())
            .handshake_timeout(second)
            .keepalive(Keepalive::default())
            .progress_timeout(second)
            .idle_timeout(second)
            .max_connection_age(second)
            .max_connection_age_grace(second)
            .drain_timeout(second)
            .max_connections(1)
            .max_connections_per_peer(1)
            .max_calls(1)
            .max_calls_per_peer(1)
            .max_memory(1 << 20)
            .unary_timeout(second)
            .log_failed_calls(true)
            .access_log(true);
        assert_eq!(builder.in_code, LiveSetting::ALL);
    }
}
