//! The server: services behind a router, and the session that drives each connection.

mod call;
mod call_stats;
mod connection;
mod handle;
mod handshake;
mod layers;
mod listen;
pub(crate) mod method_compression;
mod operators;
mod peer;
mod router;
mod serve;
mod session;
mod settings;

pub use call::{CallContext, HandlerFuture, ServerCall, Service, buffer};
pub use call_stats::{
    CallWatch, CallWatcher, EndedCallInfo, FAILED_CALLS_MAX, FailedCallInfo, MethodCalls,
    WATCHERS_MAX, latency_bound,
};
pub use connection::{ServerConnection, ServerSetup};
pub use handle::{Server, ServerParts, WeakServer};
pub use handshake::{Accepted, Opening, ServerHandshake, accept};
pub use layers::{
    InterceptedService, LayeredService, ServerRequest, ServerResponse, ServerStack, intercepted,
    layered, layered_methods,
};
pub use listen::{Gateway, Listen, Offers, OtherProtocol};
pub use method_compression::{MethodCompression, NotServed};
pub use operators::MethodAccess;
pub use peer::{Authorize, PeerInfo};
pub use serve::cores::blocking;
pub use serve::shared::OpenConnectionInfo;
pub(crate) use session::ServerSession;
pub use session::admission::{Admission, EarlyLimit, EarlyPermit};
pub use settings::{ServerOverlay, ServerSettings};
