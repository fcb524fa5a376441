//! The server: services behind a router, and the session that drives each connection.

mod authorize;
mod builder;
mod call;
mod call_rules;
mod connection;
mod layers;
mod listen;
mod live_rules;
mod method_compression;
mod peer;
mod peer_limit;
mod router;
mod serve;
mod session;

pub use authorize::Authorize;
pub use builder::{Server, ServerBuilder, WeakServer};
pub use call::{CallContext, HandlerFuture, ServerCall, Service, buffer};
pub use connection::{ServerConnection, ServerSetup};
pub use layers::{
    InterceptedService, LayeredService, ServerRequest, ServerResponse, ServerStack, intercepted,
    layered, layered_methods,
};
pub use listen::{Listen, ListenerSettings};
pub use live_rules::{LiveRules, LiveSetting};
pub use method_compression::{MethodCompression, NotServed};
pub use peer::{PeerExtensions, PeerInfo};
pub(crate) use session::ServerSession;
pub use session::admission::{Admission, EarlyLimit, EarlyPermit};
