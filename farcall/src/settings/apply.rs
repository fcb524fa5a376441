//! From tables to what builders take.

use rpc_core::overlays::MethodCompressionOverlay;
use rpc_core::settings::{Named, Settings};

use super::invalid::{Conflicts, Invalid};
use super::methods::service_config;
use super::tables::TargetTable;
use crate::server::ServerSettings;
use crate::server::settings::ServerOverlay;
use crate::{Address, ChannelBuilder, ChannelSettings, MethodCompression};

/// Returns a builder of a channel to `address`, with a table as the layer of its file.
pub(super) fn channel(
    address: Address,
    target: TargetTable,
    all: &mut Conflicts,
) -> ChannelBuilder {
    let TargetTable { settings, methods, retry_budget, .. } = target;
    all.0.extend(ChannelSettings::resolve(&settings).faults().into_iter().map(Into::into));
    let service = service_config(&methods, &retry_budget, all);
    ChannelBuilder::with_file(address, settings, service)
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
