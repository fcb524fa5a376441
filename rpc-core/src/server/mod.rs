//! The server: services behind a router, and the session that drives each connection.

mod builder;
mod call;
mod connection;
mod incoming;
mod life;
mod listen;
mod reply;
mod router;
mod run;
mod session;

pub use builder::{Server, ServerBuilder};
pub use call::{HandlerFuture, ServerCall, Service};
pub use connection::{ServerConnection, ServerSetup};
pub use listen::Listen;
pub(crate) use session::ServerSession;
