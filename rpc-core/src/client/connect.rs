//! `Connect`: how a channel makes its connections, and opens byte streams for them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use futures::future::BoxFuture;

use super::{ChannelSettings, ConfiguredNames, Established};
use crate::connect::{Bootstrap, ConnectError, ConnectFault, UpgradePolicy, Wanted};

/// The configuration of a client's connections.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// The settings of its channel.
    pub settings: Arc<ChannelSettings>,
    /// Upgraded paths to try.
    pub policy: UpgradePolicy,
    /// The names that are compared with the methods of the first server.
    pub names: Option<Arc<ConfiguredNames>>,
}

impl ClientConfig {
    /// Connects without upgraded paths, by the default settings after `change`.
    #[must_use]
    pub fn with_settings(change: impl FnOnce(&mut ChannelSettings)) -> Self {
        let mut settings = ChannelSettings::default();
        change(&mut settings);
        settings.into()
    }
}

impl From<ChannelSettings> for ClientConfig {
    /// Connects without upgraded paths.
    fn from(settings: ChannelSettings) -> Self {
        Self { settings: Arc::new(settings), ..Self::default() }
    }
}

/// Makes a connection of an open stream.
pub type Handshake<'a> = dyn Fn(Box<dyn Bootstrap>) -> Connecting<'a> + Send + Sync + 'a;

/// A connection that is being made.
pub type Connecting<'a> = BoxFuture<'a, Result<Established, ConnectError>>;

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
        let connection = connection.ok_or_else(|| {
            ConnectError::from(ConnectFault::Unreachable {
                address: self.name.to_string(),
                reason: io::Error::new(io::ErrorKind::NotConnected, "its connection has ended"),
            })
        });
        Box::pin(std::future::ready(connection))
    }
}

/// Opens byte streams to a server, for connections of any protocol.
pub trait OpenStream: fmt::Debug + Send + Sync {
    /// Opens one. What TLS has to do is left to [`Bootstrap::open`].
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>>;

    /// Opens a stream to `server`, as the user wrote it, and has `handshake` make a connection of
    /// it. Where the server has several addresses, they may take part in one race, so that one
    /// which accepts and says nothing does not hide another.
    ///
    /// # Errors
    ///
    /// Returns the error of the stream, or of the handshake.
    fn connect_by<'a>(&'a self, server: &'a str, handshake: &'a Handshake<'a>) -> Connecting<'a> {
        Box::pin(async move {
            let unreachable = |reason| {
                ConnectError::from(ConnectFault::Unreachable { address: server.to_owned(), reason })
            };
            handshake(self.open_stream().await.map_err(unreachable)?).await
        })
    }

    /// Sets further addresses of the server for later streams. A connector without addresses of
    /// the network ignores them.
    fn set_alternatives(&self, _alternatives: &Arc<[SocketAddr]>) {}
}
