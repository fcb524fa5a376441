//! Registered memory as a simulated device has it.

use crate::memory::{Access, SimulatedAccess};

/// A region in the network's table, as long as the device may use it.
#[derive(Debug)]
pub(crate) struct RegionState {
    pub(crate) context: u32,
    pub(crate) device: usize,
    pub(crate) access: Access,
    pub(crate) memory: SimulatedAccess,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}
