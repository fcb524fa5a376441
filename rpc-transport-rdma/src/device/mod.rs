//! Chooses the device and the port that serve a connection.
//!
//! By default that is the port that has the connection's local address. On RoCE its RoCE v2 GID
//! equals the address: never the first entry of the table or the last. On InfiniBand its GID is in
//! the hardware address of the network interface that has the address (IP over InfiniBand). Only
//! active ports count. Configuration can name the devices or ports that may be used, and can ask
//! for the nearest of them instead. Where several serve, the nearest to the processors of this
//! process is taken.
//!
//! Deliberately not here: opening connections, keeping devices open, and any guess when nothing
//! matches.

mod error;
mod found_port;
mod memory_window_check;
pub(crate) mod open;
mod port_name;
#[cfg_attr(not(feature = "ibverbs"), allow(dead_code))]
pub(crate) mod quirks;
mod search;
mod survey;
mod topology;

pub use error::DeviceError;
pub use found_port::FoundPort;
pub(crate) use found_port::ports_of;
pub use memory_window_check::{WindowFault, check_windows};
pub use port_name::PortName;
pub use search::{PortQuery, Search, find_port};
pub(crate) use search::{UsablePorts, find_port_by, usable_ports};
pub use survey::{DeviceSurvey, PortSurvey, SurveyError};
pub use topology::Topology;
