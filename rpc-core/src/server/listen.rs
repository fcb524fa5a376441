//! Where a server's connections come from, and the offers that come with them.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::connect::{Bootstrap, OtherProtocol, Upgrade};

/// A source of byte streams, for example a TCP listener.
pub trait Listen: std::fmt::Debug + Send + 'static {
    /// The next stream, or `None` when the listener has ended and no stream will come any more.
    /// The server then serves the connections that are open until they end, and is not asked to
    /// accept again.
    ///
    /// # Errors
    ///
    /// When accepting fails. The server logs it, waits a little and tries again, unless
    /// [`io::ErrorKind::BrokenPipe`] says that the listener is broken for ever: that ends the
    /// server with this error, after its open connections were drained.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: no stream is lost.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>>;

    /// What clients may ask for on the connections of this listener; nothing by default. A server
    /// reads it once, when it begins to serve the listener.
    fn offers(&self) -> Offers {
        Offers::default()
    }
}

/// What a listener brings along: an address cannot be served without the upgrades that it names.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Offers {
    /// The upgrades that clients may ask for, after those of the server. An upgrade of the same
    /// name as one of the server's is left out.
    pub upgrades: Vec<Arc<dyn Upgrade>>,
    /// The other protocols that clients may speak here.
    pub protocols: Vec<Arc<dyn OtherProtocol>>,
}
