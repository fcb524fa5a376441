//! Where a server's connections come from.

use std::io;

use futures::future::BoxFuture;

use crate::connect::Bootstrap;

/// A source of byte streams, for example a TCP listener.
pub trait Listen: std::fmt::Debug + Send + 'static {
    /// The next stream.
    ///
    /// # Errors
    ///
    /// When accepting fails. The server logs it, waits a little and tries again, unless
    /// [`io::ErrorKind::BrokenPipe`] says that no stream can ever come.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no stream is lost.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>>;
}
