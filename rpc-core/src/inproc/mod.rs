//! The in-process transport: a queue each way, and names to find a server by.
//!
//! The handshake runs over an in-memory byte stream, so that every connection starts alike;
//! after it, frames move from side to side by ownership, without a copy.

mod bootstrap;
mod registry;
mod transport;

pub use registry::{InprocConnector, InprocListener};
pub(crate) use transport::InprocTransport;
