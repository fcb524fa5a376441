//! What a handle asks of its devices, whether they are this machine's, simulated or none.

use rpc_core::connect::Upgrade;
use rpc_transport_rdma::{DeviceStatus, LaneInfo};

/// What opens devices, and says what is open.
pub(super) trait Devices: Upgrade {
    fn status(&self) -> Vec<DeviceStatus>;

    fn lanes(&self) -> Vec<LaneInfo>;
}
