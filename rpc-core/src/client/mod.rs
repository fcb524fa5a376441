//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

mod caller;
mod channel;
mod connection;
mod pending;
mod session;

pub use caller::Caller;
pub use channel::{Channel, Connect};
pub use connection::{ClientSetup, Connection, Outgoing};
pub use pending::{PendingReply, Reply};
pub(crate) use session::Session;
