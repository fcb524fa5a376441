//! RDMA as the runtime sees it: an upgrade of a connection, and the transport that it becomes.

mod candidate;
mod end_queues;
mod obstacle;
mod oob;
mod path_memory;
mod peer_gid;
mod transport;
mod upgrade;

pub use upgrade::RdmaUpgrade;
