//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

pub mod attempts;
mod call;
mod caller;
mod channel;
mod connection;
mod connection_manager;
pub mod endpoints;
mod foreign_connection;
mod layered;
mod method_table;
pub mod mock;
mod session;

pub use crate::stream::StreamPart;
pub use call::begun::CallDefaults;
pub use call::{
    Call, CallDeadline, ClientCall, ClientReply, MethodName, UnnamedPaths, client_streaming,
    server_streaming, streaming, unary, untyped, untyped_unary,
};
pub use caller::{Caller, DynCaller};
pub use channel::{Channel, ChannelCall};
pub use connection::{ClientSetup, Connection, Outgoing, Reply, Started};
pub(crate) use connection_manager::OneConnection;
pub use connection_manager::{Connect, Path, PathCounts};
pub use foreign_connection::{EncodedBody, EncodedCall, ForeignConnection, ForeignReply};
pub use layered::{Intercepted, LayeredChannel};
pub use method_table::{ConfiguredNames, MethodTable};
pub(crate) use session::Session;
