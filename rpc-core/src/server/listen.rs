//! The source of a server's connections, the offers that come with them, and other protocols that
//! a server speaks at the same port.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Admission, ServerConnection};
use crate::connect::{Alpn, Bootstrap, Replayed, Upgrade};
use crate::limits::log::LogLimit;
use crate::memory::MemoryShare;
use crate::{Channel, Limits, MethodDescriptor};

/// A source of byte streams, for example a TCP listener.
pub trait Listen: fmt::Debug + Send + 'static {
    /// The next stream, or `None` when the listener has ended and no stream will come any more.
    /// The server then serves the connections that are open until they end, and is not asked to
    /// accept again.
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if accepting fails. The server logs it, waits a little and tries again,
    /// unless [`io::ErrorKind::BrokenPipe`] says that the listener is broken for ever: that ends
    /// the server with this error, after its open connections were drained.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: no stream is lost.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>>;

    /// Returns the offers to clients on the connections of this listener; none by default. A server
    /// reads them once, when it begins to serve the listener.
    fn offers(&self) -> Offers {
        Offers::default()
    }
}

/// The offers of a listener: an address cannot be served without the upgrades that it names.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Offers {
    /// The upgrades that clients may ask for, after those of the server. An upgrade of the same
    /// name as one of the server's is left out.
    pub upgrades: Vec<Arc<dyn Upgrade>>,
    /// The other protocols that clients may speak here.
    pub protocols: Vec<Arc<dyn OtherProtocol>>,
}

/// A protocol that a server speaks beside farcall's, at the same port.
pub trait OtherProtocol: fmt::Debug + Send + Sync {
    /// Its name, as the list of connections and handlers have it for a transport.
    fn name(&self) -> &'static str;

    /// Returns the protocol that a client agrees on in a TLS handshake before it speaks this one.
    fn alpn(&self) -> Alpn;

    /// Returns true if a connection that begins with these bytes speaks the protocol. There are
    /// eight of them, as many as farcall's own magic has.
    fn is_begun_by(&self, first: &[u8]) -> bool;

    /// Makes a connection of the server, which serves the stream once it is started.
    fn serve(&self, gateway: Gateway) -> Arc<dyn ServerConnection>;
}

/// The parts that a connection of another protocol is served with.
pub struct Gateway {
    /// The byte stream from its first byte on.
    pub stream: Replayed,
    /// Makes calls to the server's own services, over a link inside the process that belongs to
    /// this connection alone.
    pub channel: Channel,
    /// The server's end of that link: a session like any other. It is started, drained and closed
    /// with the connection.
    pub session: Arc<dyn ServerConnection>,
    /// The server's methods by their paths.
    pub methods: Arc<HashMap<&'static str, &'static MethodDescriptor>>,
    /// Admits calls of which the message has not come.
    pub admission: Admission,
    /// Share of the server's memory budget.
    pub memory: MemoryShare,
    /// Limits the lines that clients can cause.
    pub log: LogLimit,
    /// Limits on the client.
    pub limits: Limits,
    /// Maximum time for a client to open the connection, and for the next part of a message that
    /// a call waits for.
    pub handshake_timeout: Duration,
    /// Set when the listener is shut down.
    pub draining: CancellationToken,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("session", &self.session).finish_non_exhaustive()
    }
}
