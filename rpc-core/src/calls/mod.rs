//! The call protocol as pure machines: no socket, no clock, no task, no payload.
//!
//! Each side keeps a table of what is in flight; what a driver has to remember of a call (a way to
//! wake its caller, a handle to its task) goes in as an opaque value and comes back exactly once.

pub mod client;
pub mod id_hashing;
pub(crate) mod line;
pub mod receiving;
pub mod server;
pub mod window;
