//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

pub mod attempts;
mod begun;
mod call;
mod call_deadline;
mod caller;
mod channel;
mod connection;
mod connection_manager;
mod connector;
mod download;
pub mod endpoints;
mod incoming;
mod keep_alive;
mod layered;
pub mod mock;
mod path;
mod phase;
mod ready;
mod retry;
mod session;
mod upload;

pub use begun::CallDefaults;
pub use call::{
    Call, ClientCall, ClientReply, MethodName, client_streaming, server_streaming, streaming,
    unary, untyped,
};
pub use call_deadline::CallDeadline;
pub use caller::{Caller, DynCaller};
pub use channel::Channel;
pub use connection::{ClientSetup, Connection, Outgoing, Reply, Started};
pub use connector::Connect;
pub use layered::{Intercepted, LayeredChannel};
pub use path::{Path, PathCounts};
pub(crate) use session::Session;
