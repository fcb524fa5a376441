//! The table of RDMA devices, which the crate of the transport declares.

use rpc_core::InvalidSetting;
use rpc_core::settings::Settings as _;

use super::places::Places;
use crate::{Rdma, RdmaConfig};

pub(super) use rpc_transport_rdma::RdmaOverlay as RdmaTable;

/// Returns the values that do not fit together.
pub(super) fn faults(table: &RdmaTable) -> Vec<InvalidSetting> {
    RdmaConfig::resolve(table).faults()
}

/// Returns the handle to the devices that the table describes. A table of defaults describes those
/// of the process-wide handle.
pub(super) fn handle(table: &RdmaTable, _: &Places) -> Rdma {
    Rdma::with_config(RdmaConfig::resolve(table))
}
