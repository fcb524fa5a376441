//! The call protocol as pure machines: no socket, no clock, no task, no payload.
//!
//! Each side keeps a table of what is in flight; what a driver has to remember of a call (a way to
//! wake its caller, a handle to its task) goes in as an opaque value and comes back exactly once.

pub mod backoff;
pub mod breaker;
pub mod client;
pub mod id_hashing;
pub mod keepalive;
pub mod lifetime;
pub mod line_limit;
pub mod progress;
pub mod receiving;
pub mod reconnect;
pub mod reorder;
pub mod replays;
pub mod saturation;
pub mod server;
pub mod window;
