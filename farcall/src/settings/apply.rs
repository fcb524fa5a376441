//! From tables to what builders take.

use rpc_core::InvalidSetting;
use rpc_core::overlays::MethodCompressionOverlay;
use rpc_core::settings::{Named, Settings};

use super::invalid::{Conflicts, Invalid, set};
use super::methods::service_config;
use super::tables::TargetTable;
use crate::server::ServerSettings;
use crate::server::settings::ServerOverlay;
use crate::{ChannelBuilder, Keepalive, MethodCompression, Readiness};

/// The settings of a table, if they can be together.
fn resolved<T: Settings>(overlay: &T::Overlay) -> Result<T, InvalidSetting> {
    let settings = T::resolve(overlay);
    settings.check_all().map(|()| settings)
}

impl TargetTable {
    /// What a channel's builder has from this table, its address apart.
    pub(super) fn apply(&self, builder: ChannelBuilder, all: &mut Conflicts) -> ChannelBuilder {
        let wait = self.wait_for_ready.unwrap_or(false);
        let readiness = if wait { Readiness::WaitForReady } else { Readiness::FailFast };
        let builder = builder
            .limits(all.value_of(resolved(&self.limits)))
            .compression(all.value_of(resolved(&self.compression)))
            .keepalive(all.value_of(resolved::<Option<Keepalive>>(&self.keepalive)))
            .connect_backoff(all.value_of(resolved(&self.connect_backoff)))
            .path_backoff(all.value_of(resolved(&self.path_backoff)))
            .replays(all.value_of(resolved(&self.replays)))
            .balance(all.value_of(self.balance.config()))
            .service_config(service_config(&self.methods, &self.retry_budget, all))
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

/// Checks the settings of a server, each group of them apart.
pub(super) fn check_server(server: &ServerOverlay, all: &mut Conflicts) {
    check_methods(&server.base.methods, all);
    let faults = ServerSettings::resolve(server).faults();
    // Those of methods are known with their names.
    let others = faults.into_iter().filter(|fault| !fault.name().starts_with("methods."));
    all.0.extend(others.map(Into::into));
}

/// Checks the name and the length of each method and service.
fn check_methods(methods: &MethodCompressionOverlay, all: &mut Conflicts) {
    for (name, table) in &methods.0 {
        let alone = Named([(name.clone(), table.clone())].into());
        if let Err(error) = MethodCompression::resolve(&alone).check() {
            all.0.push(Invalid {
                key: ["methods", name, "compress_from"].map(ToOwned::to_owned).to_vec(),
                value: error.value().to_owned(),
                rule: error.rule().to_owned(),
            });
        }
    }
}
