//! `Connect`: how a channel makes its connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::client::Connection;
use crate::connect::{ClientConfig, ConnectError, Wanted};

/// Makes connections to one server.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// The rules of its connections, which are the channel's too.
    fn config(&self) -> &ClientConfig;

    /// The server's address as the user wrote it, for messages and the log.
    fn address(&self) -> Arc<str>;

    /// Whether its connections speak another protocol: see [`ForeignConnection`].
    ///
    /// [`ForeignConnection`]: crate::client::ForeignConnection
    fn is_foreign(&self) -> bool {
        false
    }

    /// Sets further addresses of the server for later attempts. A connector without addresses of
    /// the network ignores them.
    fn set_alternatives(&self, _alternatives: &Arc<[SocketAddr]>) {}

    /// Makes a new connection over the path that is wanted, as far as the rules allow it.
    ///
    /// # Errors
    ///
    /// When none can be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>>;
}
