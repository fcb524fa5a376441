//! The opener of byte streams to a server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Bootstrap, ConnectError, ConnectFault};
use crate::client::Established;

/// Makes a connection of an open stream.
pub type Handshake<'a> = dyn Fn(Box<dyn Bootstrap>) -> Connecting<'a> + Send + Sync + 'a;

/// A connection that is being made.
pub type Connecting<'a> = BoxFuture<'a, Result<Established, ConnectError>>;

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
