//! Linux's counters: memory of processes, TCP segments, work of RDMA devices.

mod network;
mod process_status;
mod rdma;

pub use network::{ProtocolTable, protocol_counter};
pub use process_status::{ProcessStatus, resident_kib};
pub use rdma::device_counter;
