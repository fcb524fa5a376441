//! Serving: from services to an address.

mod admin;
pub(crate) mod builder;
pub(crate) mod error;
pub(crate) mod handle;
mod incoming;
pub(crate) mod listener;
mod offer;
pub(crate) mod serve;
pub(crate) mod settings;
mod socket;
mod start;

pub use admin::Admin;
#[cfg(feature = "settings")]
pub(crate) use admin::SettingsView;
#[doc(hidden)]
pub use admin::api as admin_api;
#[doc(hidden)]
pub use admin::channelz as channelz_api;
pub(crate) use builder::ServerBuilder;
#[cfg(feature = "settings")]
pub(crate) use builder::{LiveServer, Origin};
pub(crate) use error::ServeError;
pub(crate) use handle::Server;
pub use incoming::IntoIncoming;
#[doc(hidden)]
pub use incoming::kind;
pub(crate) use listener::Listener;
pub use rpc_core::server::ServerSettings as BaseSettings;
pub use rpc_core::server::{
    Authorize, HandlerFuture, InterceptedService, LayeredService, ServerCall, ServerRequest,
    ServerResponse, ServerStack, intercepted, layered, layered_methods,
};
pub use rpc_core::{ANY_METHOD_PATH, CALLED_PATH_KEY};
pub(crate) use serve::Serve;
pub use settings::{ProxyProtocol, ServerSettings};
pub use socket::SocketListener;
