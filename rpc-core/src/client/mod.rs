//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

mod begun;
mod call_deadline;
mod caller;
mod channel;
mod channel_calls;
mod connection;
mod connection_manager;
mod connector;
mod download;
mod dyn_caller;
mod failback;
mod incoming;
mod keep_alive;
mod layered;
pub mod mock;
mod path;
mod phase;
mod ready;
mod reply;
mod retry;
mod session;
mod upload;

pub use call_deadline::CallDeadline;
pub use caller::Caller;
pub use channel::Channel;
pub use connection::{ClientSetup, Connection, Outgoing, Reply, Started};
pub use connector::Connect;
pub use dyn_caller::DynCaller;
pub use layered::{ClientCall, ClientReply, Intercepted, LayeredChannel};
pub use path::{Path, PathCounts};
pub(crate) use session::Session;
