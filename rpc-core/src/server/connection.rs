//! A connection as the server sees it, its transport type forgotten.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::router::Router;
use crate::Limits;
use crate::connect::ConnectionInfo;
use crate::transport::Addresses;

/// What a server's session is started with.
#[derive(Debug)]
pub struct ServerSetup {
    /// What this side accepts.
    pub limits: Limits,
    /// What the client accepts.
    pub peer_limits: Limits,
    /// The connection's two ends.
    pub addresses: Addresses,
    /// Why the connection did not move to a better path.
    pub fallback: Option<String>,
    pub(crate) router: Arc<Router>,
}

/// The server's end of one connection.
pub trait ServerConnection: fmt::Debug + Send + Sync {
    /// Waits until the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    fn closed(&self) -> BoxFuture<'_, ()>;

    /// Refuses new calls from now on, and waits until those in flight have ended.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, new calls stay refused.
    fn drained(&self) -> BoxFuture<'_, ()>;

    /// Ends the connection; handlers of calls in flight are dropped.
    fn close(&self);

    /// What the connection says of itself.
    fn info(&self) -> ConnectionInfo;
}
