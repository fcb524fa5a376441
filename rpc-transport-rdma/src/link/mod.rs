//! RDMA as the runtime sees it: an upgrade of a connection, and the transport that it becomes.

mod obstacle;
mod oob;
mod peer_gid;
mod transport;
mod upgrade;

pub use upgrade::RdmaUpgrade;
