//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

mod caller;
mod channel;
mod connection;
mod download;
mod incoming;
mod keep_alive;
mod layered;
pub mod mock;
mod session;
mod started;
mod upload;

pub use caller::Caller;
pub use channel::{Channel, Connect};
pub use connection::{ClientSetup, Connection, Outgoing};
pub use layered::{ClientCall, ClientReply, Intercepted, LayeredChannel};
pub(crate) use session::Session;
pub use started::{Reply, Started};
