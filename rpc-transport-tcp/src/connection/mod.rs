//! A connected byte stream as a transport: the operations of senders and of the connection's task.

pub(crate) mod bootstrap;
pub(crate) mod driver;
mod linger;
pub(crate) mod read;
pub(crate) mod reserve;
mod scratch;
pub(crate) mod shared;
pub(crate) mod socket;
pub(crate) mod transport;
mod wakeup;
pub(crate) mod write;
