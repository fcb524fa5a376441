//! Devices where a provider of verbs is built in: this machine's, or simulated ones.

use std::sync::Arc;

use rpc_transport_rdma::{DeviceStatus, LaneInfo, RdmaConfig, RdmaUpgrade};

use super::devices::Devices;

#[cfg(feature = "rdma")]
pub(super) fn devices_of_host(config: &RdmaConfig) -> Arc<dyn Devices> {
    Arc::new(RdmaUpgrade::new(config.clone()))
}

#[cfg(feature = "sim")]
pub(super) fn devices_of_network(
    network: &crate::sim::SimNetwork,
    config: &RdmaConfig,
) -> Arc<dyn Devices> {
    Arc::new(RdmaUpgrade::with_provider(Box::new(network.provider()), config.clone()))
}

impl Devices for RdmaUpgrade {
    fn status(&self) -> Vec<DeviceStatus> {
        self.devices()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        self.lanes()
    }
}
