//! The client: a cheap [`Channel`] handle over a connection, and the session that drives it.

pub mod attempts;
mod call;
mod caller;
mod channel;
mod connect;
mod connection;
mod connection_manager;
pub mod endpoints;
mod established;
mod method_table;
pub mod mock;
mod session;
mod settings;
mod subchannel;
mod target;

pub use crate::stream::StreamPart;
pub use crate::transport::received::ReceivedMessage;
pub use call::rules::CallRules;
pub use call::{
    Call, CallDeadline, ClientCall, ClientReply, client_streaming, server_streaming, streaming,
    unary, untyped, untyped_unary,
};
pub use caller::{Caller, DynCaller, Intercepted, LayeredChannel};
pub use channel::{CallCredentials, Channel, ChannelParts, Credentials};
pub(crate) use connect::OneConnection;
pub use connect::{ClientConfig, Connect, Connecting, Handshake, OpenStream, connect};
pub use connection::{
    ClientSetup, Connection, EncodedBody, EncodedCall, EncodedCalls, EncodedReply,
};
pub(crate) use connection::{Outgoing, Reply};
pub use connection_manager::Path;
pub use established::Established;
pub(crate) use established::Started;
pub use method_table::{ConfiguredNames, MethodTable};
pub use session::Session;
pub use settings::ChannelSettings;
#[doc(hidden)]
pub use settings::ChannelSettingsOverlay;
pub use subchannel::Subchannel;
pub use target::{Target, TargetRules, Watched, WatchedRules};
