//! A port of a device with the GID under which peers reach it.

use super::{Device, Gid, PortAttributes};

/// A chosen port. `crate::device` chooses it.
#[derive(Debug, Clone)]
pub struct Port {
    /// The device.
    pub device: Device,
    /// Number of the port; ports count from 1.
    pub number: u8,
    /// Position of the GID in the port's table.
    pub gid_index: u8,
    /// The GID.
    pub gid: Gid,
    /// Attributes as they were when the port was chosen.
    pub attributes: PortAttributes,
}
