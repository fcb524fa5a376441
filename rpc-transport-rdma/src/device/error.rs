//! Why no port was found, with what there is instead.

use std::net::IpAddr;
use std::time::Duration;

use super::FoundPort;
use crate::verbs::{GidEntry, PortState, VerbsError};

/// Why no port was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no RDMA device at all.
    #[error("there is no RDMA device")]
    NoDevice,
    /// No active port has the address.
    #[error("no active RDMA port has the address {address}; found: {}", list(found))]
    NoMatchingGid {
        /// The address that was looked for.
        address: IpAddr,
        /// The ports that were found.
        found: Vec<FoundPort>,
    },
    /// No active port has a GID that a peer could be given.
    #[error("no active RDMA port can serve {address}; found: {}", list(found))]
    NoUsablePort {
        /// The local address of the connection, whose family the GID must have on Ethernet.
        address: IpAddr,
        /// The ports that were found.
        found: Vec<FoundPort>,
    },
    /// The place of the GID table that the configuration names has no GID for the address.
    #[error(
        "no active RDMA port can serve {address} with the GID at rdma.gid_index {index}; found: {}",
        places(found)
    )]
    NoGidAtIndex {
        /// The place.
        index: u8,
        /// The local address of the connection.
        address: IpAddr,
        /// The ports that were found.
        found: Vec<FoundPort>,
    },
    /// No port is active and has a GID that a peer could be given.
    #[error("no RDMA port is active and has an address; found: {}", list(found))]
    NoActivePort {
        /// The ports that were found.
        found: Vec<FoundPort>,
    },
    /// A port could serve the address and is not active.
    #[error("port {port} of {device} has the address {address} but is not active (state {state})")]
    PortDown {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The port's state as verbs numbers it.
        state: u32,
    },
    /// A name in the configuration is none of a device or port.
    #[error("rdma.devices: {name:?} is not the name of a device (`mlx5_0`) or port (`mlx5_0:1`)")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// A device has no port of the number that the configuration names.
    #[error("rdma.devices: {device} has no port {port}; it has {port_count}")]
    NoSuchPort {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Number of its ports.
        port_count: u8,
    },
    /// A device is open and does not say what ports it has.
    #[error("the RDMA device {device} does not answer: it may be in a reset (`dmesg` shows that)")]
    NoAnswer {
        /// The device.
        device: String,
        /// The system's answer.
        #[source]
        source: VerbsError,
    },
    /// Another search asks the devices, and one of them does not answer.
    #[error("a search for RDMA devices has not ended within {waited:?}: firmware may have hung")]
    SearchPending {
        /// Time that this search waited for the other one.
        waited: Duration,
    },
    /// A device could not be listed or opened.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// The GIDs with their places.
fn places(found: &[FoundPort]) -> String {
    let describe = |port: &FoundPort| {
        let place =
            |entry: &GidEntry| format!("{} is {} ({:?})", entry.index, entry.gid, entry.kind);
        let gids: Vec<_> = port.gids.iter().map(place).collect();
        format!("{} port {}: {}", port.device, port.port, gids.join(", "))
    };
    if found.is_empty() {
        return "no port".to_owned();
    }
    found.iter().map(describe).collect::<Vec<_>>().join("; ")
}

fn list(found: &[FoundPort]) -> String {
    if found.is_empty() {
        return "no port".to_owned();
    }
    let describe = |port: &FoundPort| {
        let gids: Vec<_> =
            port.gids.iter().map(|entry| format!("{} ({:?})", entry.gid, entry.kind)).collect();
        let state = match port.attributes.state {
            PortState::Active => "active".to_owned(),
            PortState::Inactive(state) => format!("not active, state {state}"),
        };
        format!("{} port {} ({state}): {}", port.device, port.port, gids.join(", "))
    };
    found.iter().map(describe).collect::<Vec<_>>().join("; ")
}
