//! Limits on what a peer may make this process receive, hold, run, and write into the log.

#[cfg(test)]
pub(crate) mod captured_log;
pub(crate) mod connection;
pub mod log;
pub mod memory;
pub mod peer_key;
pub mod quota;
pub(crate) mod shared;
