//! `Connect`: how a channel makes its connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

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

/// Gives its connection to the channel that asks first, and to none after that.
#[derive(Debug)]
pub(crate) struct OneConnection {
    name: Arc<str>,
    config: ClientConfig,
    connection: Mutex<Option<Established>>,
}

impl OneConnection {
    pub(crate) fn new(name: Arc<str>, connection: Established) -> Self {
        let (config, connection) = (ClientConfig::default(), Mutex::new(Some(connection)));
        Self { name, config, connection }
    }
}

impl Connect for OneConnection {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connection = connection.ok_or_else(|| ConnectError::Unreachable {
            address: self.name.to_string(),
            reason: io::Error::new(io::ErrorKind::NotConnected, "its connection has ended"),
        });
        Box::pin(std::future::ready(connection))
    }
}
