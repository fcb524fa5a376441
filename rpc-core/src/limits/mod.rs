//! Limits on what a peer may make this process receive, hold, run, and write into the log.

pub(crate) mod connection;
pub mod log;
pub mod memory;
pub mod quota;
pub(crate) mod shared;
