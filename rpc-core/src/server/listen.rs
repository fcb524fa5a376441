//! Where a server's connections come from, and the settings that come with them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::connect::{Bootstrap, OtherProtocol, Upgrade};
use crate::{Compression, Keepalive, Limits};

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

    /// The settings of the connections that this listener accepts. A server reads them once, when
    /// it begins to serve the listener. None by default.
    fn settings(&self) -> ListenerSettings {
        ListenerSettings::default()
    }
}

/// Settings that a listener brings along. A server applies them by itself, so that an address
/// cannot be served without the upgrades that it names. A setting of the
/// [`ServerBuilder`](super::ServerBuilder) takes precedence over the listener's.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ListenerSettings {
    /// The upgrades that clients may ask for, after those of the builder. An upgrade of the same
    /// name as one of the builder's is left out.
    pub upgrades: Vec<Arc<dyn Upgrade>>,
    /// The other protocols that clients may speak here.
    pub protocols: Vec<Arc<dyn OtherProtocol>>,
    /// See [`ServerBuilder::limits`](super::ServerBuilder::limits).
    pub limits: Option<Limits>,
    /// See [`ServerBuilder::compression`](super::ServerBuilder::compression).
    pub compression: Option<Compression>,
    /// See [`ServerBuilder::handshake_timeout`](super::ServerBuilder::handshake_timeout).
    pub handshake_timeout: Option<Duration>,
    /// See [`ServerBuilder::keepalive`](super::ServerBuilder::keepalive); the inner `None` switches
    /// it off.
    pub keepalive: Option<Option<Keepalive>>,
    /// See [`ServerBuilder::progress_timeout`](super::ServerBuilder::progress_timeout); the inner
    /// `None` waits for ever.
    pub progress_timeout: Option<Option<Duration>>,
}

impl ListenerSettings {
    /// The settings of `self`, and those of `others` that `self` does not have.
    pub(super) fn or(&self, others: Self) -> Self {
        let mut upgrades = self.upgrades.clone();
        for other in others.upgrades {
            if upgrades.iter().all(|upgrade| upgrade.name() != other.name()) {
                upgrades.push(other);
            }
        }
        let protocols = self.protocols.iter().chain(&others.protocols).cloned().collect();
        Self {
            upgrades,
            protocols,
            limits: self.limits.or(others.limits),
            compression: self.compression.or(others.compression),
            handshake_timeout: self.handshake_timeout.or(others.handshake_timeout),
            keepalive: self.keepalive.or(others.keepalive),
            progress_timeout: self.progress_timeout.or(others.progress_timeout),
        }
    }
}
