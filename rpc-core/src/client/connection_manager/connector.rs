//! `Connect`: how a channel makes its connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::client::Established;
use crate::connect::{ClientConfig, ConnectError, Wanted};

/// Makes connections to one server.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// The rules of its connections, which are the channel's too.
    fn config(&self) -> &ClientConfig;

    /// The server's address as the user wrote it, for messages and the log.
    fn address(&self) -> Arc<str>;

    /// Returns true if its connections speak another protocol, as [`Established::Encoded`]. A
    /// channel encodes calls before it has a connection.
    fn is_encoded(&self) -> bool {
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
    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>>;
}
