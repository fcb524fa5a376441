//! RDMA where it is not built in: asked for, it says so.

use std::sync::Arc;

use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade};
use rpc_core::transport::Addresses;
use rpc_transport_rdma::{DeviceStatus, LaneInfo, RdmaConfig};

use super::devices::Devices;

pub(super) fn devices_of_host(_: &RdmaConfig) -> Arc<dyn Devices> {
    Arc::new(NotBuiltIn)
}

#[derive(Debug)]
struct NotBuiltIn;

fn declined() -> Declined {
    Declined::new("farcall is built without its feature `rdma`")
}

impl Upgrade for NotBuiltIn {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        Err(declined())
    }

    fn accept(&self, _: &Addresses, _: &[u8]) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        Err(declined())
    }
}

impl Devices for NotBuiltIn {
    fn status(&self) -> Vec<DeviceStatus> {
        Vec::new()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        Vec::new()
    }
}
