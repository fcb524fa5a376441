//! The server: services behind a router, and the session that drives each connection.

mod answer;
mod builder;
mod call;
mod call_record;
mod call_streams;
mod connection;
mod connections;
mod context;
mod handling;
mod head;
mod incoming;
mod intercepted;
mod layered;
mod layers;
mod life;
mod listen;
mod memory;
mod peer;
mod peer_limit;
mod reply;
mod router;
mod rules;
mod run;
mod session;
mod shared;
mod time_limit;

pub use builder::{Server, ServerBuilder};
pub use call::{HandlerFuture, ServerCall, Service};
pub use connection::{ServerConnection, ServerSetup};
pub use context::{CallContext, buffer};
pub use intercepted::{InterceptedService, intercepted};
pub use layered::{LayeredService, layered, layered_methods};
pub use layers::{ServerRequest, ServerResponse, ServerStack};
pub use listen::{Listen, ListenerSettings};
pub use peer::{PeerExtensions, PeerInfo};
pub(crate) use session::ServerSession;
