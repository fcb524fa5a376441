//! The table of RDMA devices, which the crate of the transport declares.

use rpc_core::InvalidSetting;

use super::places::Places;
use crate::{Rdma, RdmaConfig};

pub(super) use rpc_transport_rdma::RdmaOverlay as RdmaTable;

/// Checks values that have to fit together.
pub(super) fn check(table: &RdmaTable) -> Result<(), InvalidSetting> {
    config(table).map(drop)
}

/// Makes the handle to the devices that the table describes.
pub(super) fn handle(table: &RdmaTable, _: &Places) -> Result<Rdma, InvalidSetting> {
    config(table).map(Rdma::new)
}

fn config(table: &RdmaTable) -> Result<RdmaConfig, InvalidSetting> {
    let config = table.settings();
    config.check().map(|()| config)
}
